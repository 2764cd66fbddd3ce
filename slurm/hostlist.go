package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxHosts is the maximum number of hosts in a list; Slurm refuses a larger range.
	//
	// Source: scontrol 22.05, "Too many hosts in range".
	maxHosts = 64 << 10
	// maxNameBytes is the maximum length of a host name.
	//
	// Source: RFC 1035, 2.3.4.
	maxNameBytes = 255
	// maxDigits keeps numbers within 64 bits.
	maxDigits = 18
)

// ErrTooManyHosts means that a list names more than 65,536 hosts.
var ErrTooManyHosts = errors.New("slurm: the list names more than 65,536 hosts")

// ParseHostlist expands a list in Slurm's syntax, in order: gpu01, gpu02 and gpu07 for
// "gpu[01-02,07]".
//
// Elements are separated by commas or white space; empty ones are ignored. An element may have
// several brackets; the last one varies fastest ("rack[1-2]node[01-40]"), and text after them.
// The width of a range is that of its lower end ("[08-10]", "[001-3]"). A host that is named twice
// appears twice. The error is ErrTooManyHosts, or describes what is malformed.
//
// Source: "scontrol show hostnames" of Slurm 22.05, which orders an element with three brackets
// differently, a feature of machines that no longer exist, and accepts no text after the last
// bracket.
func ParseHostlist(text string) ([]string, error) {
	var hosts []string
	for rest := text; rest != ""; {
		var element string
		var err error
		if element, rest, err = cutElement(rest); err != nil {
			return nil, err
		}
		if element == "" {
			continue
		}
		if hosts, err = appendElement(hosts, element); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// cutElement cuts a list at the first separator outside brackets.
func cutElement(list string) (element, rest string, err error) {
	open := -1
	for i, c := range []byte(list) {
		switch {
		case c == '[' && open < 0:
			open = i
		case c == ']' && open >= 0:
			open = -1
		case c == '[' || c == ']':
			return "", "", fmt.Errorf("slurm: unmatched ] in the host list %q", clip(list))
		case open < 0 && (c == ',' || c == ' ' || c == '\t' || c == '\n'):
			return list[:i], list[i+1:], nil
		}
	}
	if open >= 0 {
		return "", "", fmt.Errorf("slurm: unclosed [ in the host list %q", clip(list))
	}
	return list, "", nil
}

// appendElement appends the hosts of an element with balanced brackets.
func appendElement(hosts []string, element string) ([]string, error) {
	names, length := []string{""}, 0 // of the longest
	for rest := element; rest != ""; {
		literal, more, bracketed := strings.Cut(rest, "[")
		numbers := []string{""}
		rest = ""
		if bracketed {
			var inside string
			var err error
			inside, rest, _ = strings.Cut(more, "]")
			if numbers, err = parseRanges(inside); err != nil {
				return nil, err
			}
		}
		if len(hosts)+len(names)*len(numbers) > maxHosts {
			return nil, ErrTooManyHosts
		}
		if length += len(literal) + longest(numbers); length > maxNameBytes {
			return nil, fmt.Errorf("slurm: a name is longer than %d bytes in the host list %q",
				maxNameBytes, clip(element))
		}
		longer := make([]string, 0, len(names)*len(numbers))
		for _, name := range names {
			for _, number := range numbers {
				longer = append(longer, name+literal+number)
			}
		}
		names = longer
	}
	return append(hosts, names...), nil
}

func longest(texts []string) int {
	n := 0
	for _, t := range texts {
		n = max(n, len(t))
	}
	return n
}

// parseRanges returns the numbers inside brackets, such as "01-04,07".
func parseRanges(inside string) ([]string, error) {
	var numbers []string
	for part := range strings.SplitSeq(inside, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := parseNumber(low)
		to, err2 := parseNumber(high)
		if err1 != nil || err2 != nil || to < from || len(low) > maxNameBytes {
			return nil, fmt.Errorf("slurm: invalid range %q in a host list, want one such as 01-04",
				clip(part))
		}
		if to-from >= maxHosts-int64(len(numbers)) {
			return nil, ErrTooManyHosts
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, pad(n, len(low)))
		}
	}
	return numbers, nil
}

// parseNumber parses digits, at most maxDigits after leading zeros.
func parseNumber(digits string) (int64, error) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	digits = strings.TrimLeft(digits, "0")
	if len(digits) > maxDigits {
		return 0, strconv.ErrRange
	}
	n, _ := strconv.ParseInt("0"+digits, 10, 64)
	return n, nil
}

// pad returns n with leading zeros, at least width digits wide.
func pad(n int64, width int) string {
	digits := strconv.FormatInt(n, 10)
	return strings.Repeat("0", max(0, width-len(digits))) + digits
}

// FormatHostlist returns a short list of the hosts, in order, with a range for adjacent names that
// differ in the number at their end: "gpu[01-02],gpu07". ParseHostlist reverses it if the hosts are
// names without comma, bracket or white space.
func FormatHostlist(hosts []string) string {
	var elements []string
	for len(hosts) > 0 {
		prefix, low := splitName(hosts[0])
		first, err := parseNumber(low)
		n, element := 1, hosts[0]
		for err == nil && n < len(hosts) && hosts[n] == prefix+pad(first+int64(n), len(low)) {
			n++
		}
		if n > 1 {
			element = prefix + "[" + low + "-" + pad(first+int64(n-1), len(low)) + "]"
		}
		elements, hosts = append(elements, element), hosts[n:]
	}
	return strings.Join(elements, ",")
}

// splitName cuts a name before its final digits, fewer than maxDigits of them, so that
// ParseHostlist accepts the number after the last of a range, too.
func splitName(host string) (prefix, digits string) {
	at := len(host)
	for at > 0 && len(host)-at < maxDigits-1 && host[at-1] >= '0' && host[at-1] <= '9' {
		at--
	}
	return host[:at], host[at:]
}

// clip shortens text for an error message.
func clip(text string) string {
	if len(text) > 80 {
		return text[:77] + "..."
	}
	return text
}
