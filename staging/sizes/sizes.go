// Package sizes reads the sizes, rates and shares that people write in options and files. It
// refuses what could mean two things.
package sizes

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// units are the bytes in each unit. K, M and G alone are not among them, since some programs take
// them for powers of 1000 and others for powers of 1024; nor are Mb and Gb, which may be bits.
var units = map[string]float64{
	"B":  1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
	"EiB": 1 << 60,
}

// lower has the same units in lower case.
var lower = func() map[string]float64 {
	all := map[string]float64{}
	for unit, bytes := range units {
		all[strings.ToLower(unit)] = bytes
	}
	return all
}()

// leastUnitless is the smallest number without a unit that counts as bytes, except 0: a smaller
// one, as in "64", was meant in another unit.
const leastUnitless = 1 << 20

// quantity is a decimal number and a unit. A comma is no part of a number: it is a decimal point in
// some languages and groups digits in others.
var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) *(.*)$`)

// parse splits a text such as "1.5GiB" into its number and its unit.
func parse(text string) (number float64, unit string, err error) {
	parts := quantity.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return 0, "", errors.New("no number")
	}
	number, err = strconv.ParseFloat(parts[1], 64)
	return number, parts[2], err
}

// Parse reads "64GiB", "1.5 GB" or "0": a number of bytes in [0, 2⁶³).
//
// Units are binary (KiB, MiB, GiB, TiB, PiB, EiB) or decimal (KB, MB, …), or B, as here or in
// lower case. A whole number without a unit is bytes; if it is below 1 MiB and not 0, it is
// refused.
func Parse(text string) (int64, error) {
	number, unit, err := parse(text)
	each, known := units[unit]
	if !known {
		each, known = lower[unit]
	}
	bytes := number * each
	switch {
	case err == nil && number == 0 && unit == "":
		return 0, nil
	case err == nil && unit == "" && number >= leastUnitless && number == math.Trunc(number):
		bytes = number
	case err == nil && unit == "":
		return 0, fmt.Errorf("%q has no unit: write a size such as 64GiB, 1.5GB or 64B", text)
	case err != nil || !known || 0 < bytes && bytes < 1:
		return 0, fmt.Errorf("%q is not a size such as 64GiB, 1.5GB or 0", text)
	}
	if bytes >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size below 8EiB", text)
	}
	return int64(math.Round(bytes)), nil
}

// Rate reads a number of bytes per second: "10GB" or "10GB/s".
func Rate(text string) (int64, error) {
	return Parse(strings.TrimSuffix(strings.TrimSpace(text), "/s"))
}

// Share reads "20%" as 0.2. isShare is false, and the others mean nothing, if text does not end
// with "%".
func Share(text string) (share float64, isShare bool, err error) {
	number, unit, err := parse(text)
	if !strings.HasSuffix(strings.TrimSpace(text), "%") {
		return 0, false, nil
	}
	if err != nil || unit != "%" || number > 100 {
		return 0, true, fmt.Errorf("%q is not a share from 0%% to 100%%, such as 12.5%%", text)
	}
	return number / 100, true, nil
}
