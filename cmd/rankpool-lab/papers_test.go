package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A statement is what a page states in numbers, in one table and in sentences. A comment before the
// table, or after the sentence, says where they come from:
//
//	<!-- numbers
//	$ rankpool-lab simulate …
//	`lru` := .hit | .hit; .sub |
//	:= 100 * icache.hits / icache.draws
//	"takes # s, # times as long" := lru.time; lru.time / icache.time
//	-->
//
// The commands are those of the last code block, up to a heading or a paragraph that begins in bold
// letters, and those after $. Left of := is the beginning of a row, or a quoted sentence in which #
// is a number. Right of it are the row's other cells, or one for all of them; in a cell, one
// expression for each number, in order. A cell without an expression is not checked, nor a number
// whose expression is _, nor what a header says is of the text or of a table of the paper.
//
// An expression has fields of what the commands print with --json, as [N:][NAME][@CAPACITY].FIELD:
// of the command N, from 1; of a system, or of a policy with --nopfs, by default the first word in
// code of the row; of a capacity, by default the column's header, if that is a percentage. A number
// is right if it is the value, rounded to as many places.
//
// A table of what a test cannot compute has a comment "measured: DATE, …".
type statement struct {
	page     string
	line     int
	commands string // a shell script
	rules    []rule
	header   []string
	rows     [][]string
	text     string // of the whole page, in one line
}

type rule struct {
	of    string
	cells []string
}

// record is an object that a command printed, and its number.
type record struct {
	command int
	fields  map[string]any
}

var (
	number    = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	percent   = regexp.MustCompile(`^([\d.]+) %$`)
	code      = regexp.MustCompile("`([^`]+)`")
	word      = regexp.MustCompile(`[^\s();]*[a-z][^\s();]*`)
	reference = regexp.MustCompile(`^(?:(\d+):)?([a-z][a-z0-9-]*)?(?:@([\d.]+))?\.([a-z_]\w*)$`)
	space     = regexp.MustCompile(`\s+`)
	// Theirs is in headers of columns and rows with a paper's numbers.
	theirs = regexp.MustCompile(`the text|[Tt]able`)
)

// statements returns what a page states, and an error for each table without a comment.
func statements(page, text string) (all []statement, errs []error) {
	lines := strings.Split(text, "\n")
	block, line := "", 0
	until := func(end string) string {
		from := line
		for line++; line < len(lines) && !strings.Contains(lines[line], end); line++ {
		}
		return strings.Join(lines[from+1:min(line, len(lines))], "\n") + "\n"
	}
	var next *statement // the comment above, for the table below
	for ; line < len(lines); line++ {
		switch now := lines[line]; {
		case strings.HasPrefix(now, "```"):
			if b := until("```"); strings.Contains(b, "-lab simulate") || strings.Contains(b, "python3 -") {
				block = b
			}
		case strings.HasPrefix(now, "**"), strings.HasPrefix(now, "#"):
			block = ""
		case strings.HasPrefix(now, "<!-- measured: "):
			next = &statement{}
		case now == "<!-- numbers":
			s := statement{
				page: page, line: line + 1, commands: block,
				text: space.ReplaceAllString(text, " "),
			}
			for _, l := range strings.Split(strings.ReplaceAll(until("-->"), "\\\n", ""), "\n") {
				if command, is := strings.CutPrefix(l, "$ "); is {
					s.commands += command + "\n"
				} else if of, cells, is := strings.Cut(l, ":="); is {
					s.rules = append(s.rules, rule{strings.TrimSpace(of), strings.Split(cells, "|")})
				}
			}
			all = append(all, s)
			next = &all[len(all)-1]
		case strings.HasPrefix(now, "|"):
			if next == nil {
				errs = append(errs, fmt.Errorf("%s:%d: no comment says where these numbers are from",
					page, line+1))
				next = &statement{}
			}
			next.header = cells(now)
			for line += 2; line < len(lines) && strings.HasPrefix(lines[line], "|"); line++ {
				next.rows = append(next.rows, cells(lines[line]))
			}
			line--
			next = nil
		case now != "":
			next = nil
		}
	}
	return all, errs
}

// cells returns the cells of a row.
func cells(row string) []string {
	all := strings.Split(strings.Trim(row, "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// runCommands runs a script in a folder in which every simulation prints JSON, and adds the shares
// hit, sub and found in %, and time. A script that prints no JSON gives one record: its numbers are
// the fields n1, n2 and so on.
func runCommands(t *testing.T, script string) []record {
	lab, err := exec.LookPath("rankpool-lab")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	traces, err := filepath.Abs("../../benchmarks")
	if err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\nexec " + lab + " \"$@\" --json\n"
	if err := errors.Join(os.Symlink(traces, filepath.Join(dir, "benchmarks")),
		os.WriteFile(filepath.Join(dir, "rankpool-lab"), []byte(wrapper), 0o700)); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "sh", "-ec", script)
	c.Dir = dir
	path := dir + ":/usr/bin:" + os.Getenv("PATH") // Debian's Python has NumPy
	c.Env = append(os.Environ(), "T=benchmarks/traces/fashion", "PATH="+path)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, script, &stderr)
	}
	var all []record
	if !bytes.HasPrefix(out, []byte("[\n{")) {
		r := record{1, map[string]any{}}
		for i, n := range number.FindAllString(string(out), -1) {
			x, err := strconv.ParseFloat(n, 64)
			if err != nil {
				t.Fatal(err)
			}
			r.fields[fmt.Sprintf("n%d", i+1)] = x
		}
		return []record{r}
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for command := 1; ; command++ {
		var objects []map[string]any
		if err := decoder.Decode(&objects); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			flatten(o, "", o)
			if draws, ok := o["draws"].(float64); ok && draws > 0 {
				n := func(name string) float64 { x, _ := o[name].(float64); return x }
				o["hit"], o["sub"] = 100*n("hits")/draws, 100*n("substituted")/draws
				o["time"] = n("epoch_seconds")
				// hits as IMPACT counts them
				o["found"] = 100 * (n("hits") + n("substituted") + n("substitute_reads") + n("evaluated") -
					n("evaluated_reads")) / (draws + n("evaluated"))
			}
			all = append(all, record{command, o})
		}
	}
}

// flatten adds the numbers within an array or object to record: data[0].kept as data_0_kept.
func flatten(record map[string]any, name string, value any) {
	switch v := value.(type) {
	case float64:
		record[name] = v
	case []any:
		for i, element := range v {
			flatten(record, fmt.Sprintf("%s_%d", name, i), element)
		}
	case map[string]any:
		for key, element := range maps.Clone(v) {
			flatten(record, strings.TrimPrefix(name+"_"+key, "_"), element)
		}
	}
}

// check returns how many numbers it compared, and what is wrong.
func (s *statement) check(results []record) (checked int, wrong []string) {
	compare := func(what, name, capacity, cell string, numbers []string, rules string) {
		expressions := strings.Split(rules, ";")
		if len(numbers) != len(expressions) {
			if len(numbers) == 0 && refused(results, name, word.FindString(rules)) {
				return
			}
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s: %q has %d numbers, and there are %d "+
				"expressions", s.page, s.line, what, cell, len(numbers), len(expressions)))
			return
		}
		for i, n := range numbers {
			expression := strings.TrimSpace(expressions[i])
			if expression == "_" {
				continue
			}
			value, err := evaluate(expression, results, name, capacity)
			_, decimals, _ := strings.Cut(n, ".")
			if err == nil {
				checked++
				stated, _ := strconv.ParseFloat(strings.ReplaceAll(n, ",", ""), 64)
				if math.Abs(value-stated) > 0.5000001*math.Pow10(-len(decimals)) {
					err = fmt.Errorf("stale: %s, now %.*f", n, len(decimals), value)
				}
			}
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %s: %q: %v", s.page, s.line, what, cell, err))
			}
		}
	}
	used := make([]bool, len(s.rules))
	for i, r := range s.rules {
		if !strings.HasPrefix(r.of, `"`) {
			continue
		}
		used[i] = true
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.Trim(r.of, `"`)), "#", "("+number.String()+")")
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(s.text, -1)
		if len(found) != 1 {
			wrong = append(wrong, fmt.Sprintf("%s:%d: the page has %s %d times", s.page, s.line, r.of,
				len(found)))
			continue
		}
		compare(r.of, "", "", found[0][0], found[0][1:], r.cells[0])
	}
	for _, row := range s.rows {
		if theirs.MatchString(row[0]) {
			continue
		}
		at := slices.IndexFunc(s.rules, func(r rule) bool {
			return !strings.HasPrefix(r.of, `"`) && strings.HasPrefix(row[0], r.of)
		})
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("%s:%d: no expression for the row %s", s.page, s.line, row[0]))
			continue
		}
		used[at] = true
		name := ""
		if c := code.FindStringSubmatch(row[0]); c != nil {
			name = c[1]
		}
		for i, cell := range row[1:] {
			rules := s.rules[at].cells[min(i, len(s.rules[at].cells)-1)]
			capacity := ""
			if c := percent.FindStringSubmatch(s.header[i+1]); c != nil {
				capacity = c[1] + "%"
			}
			if strings.TrimSpace(rules) != "" && cell != "" && !theirs.MatchString(s.header[i+1]) {
				compare(row[0]+", "+s.header[i+1], name, capacity, cell, number.FindAllString(cell, -1), rules)
			}
		}
	}
	for i, u := range used {
		if !u {
			wrong = append(wrong, fmt.Sprintf("%s:%d: no row begins with %q", s.page, s.line, s.rules[i].of))
		}
	}
	return checked, wrong
}

// evaluate returns the value of an expression.
func evaluate(expression string, results []record, name, capacity string) (float64, error) {
	var wrong error
	text := word.ReplaceAllStringFunc(expression, func(w string) string {
		r, err := find(w, results, name, capacity)
		if err != nil {
			wrong = err
			return "0"
		}
		value, ok := r[w[strings.LastIndex(w, ".")+1:]].(float64)
		if !ok {
			wrong = fmt.Errorf("%s is not a number", w)
		}
		return "float64(" + strconv.FormatFloat(value, 'g', -1, 64) + ")"
	})
	if wrong != nil {
		return 0, wrong
	}
	value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, text)
	if err != nil {
		return 0, err
	}
	x, _ := constant.Float64Val(value.Value)
	return x, nil
}

// find returns the result that a reference names.
func find(w string, results []record, name, capacity string) (map[string]any, error) {
	if !strings.Contains(w, ".") {
		w = "." + w
	}
	m := reference.FindStringSubmatch(w)
	if m == nil {
		return nil, fmt.Errorf("%s names no field", w)
	}
	is := func(r record, name string) bool {
		return r.fields["system"] == name || r.fields["system"] == nil && r.fields["policy"] == name
	}
	if m[2] != "" {
		name = m[2]
	} else if !slices.ContainsFunc(results, func(r record) bool { return is(r, name) }) {
		name = ""
	}
	if m[3] != "" {
		capacity = m[3]
	}
	share, _ := strconv.ParseFloat(strings.TrimSuffix(capacity, "%"), 64)
	if strings.HasSuffix(capacity, "%") {
		share /= 100
	}
	var found map[string]any
	for _, r := range results {
		c, has := r.fields["capacity"].(float64)
		if name != "" && !is(r, name) || m[1] != "" && m[1] != strconv.Itoa(r.command) ||
			has && capacity != "" && math.Abs(c-share) > 1e-9 {
			continue
		}
		if found != nil && found[m[4]] != r.fields[m[4]] {
			return nil, fmt.Errorf("%s names several results", w)
		}
		found = r.fields
	}
	if found == nil {
		return nil, fmt.Errorf("%s names no result", w)
	}
	return found, nil
}

// refused reports whether a policy could not be used.
func refused(results []record, name, reference string) bool {
	r, err := find(reference, results, name, "")
	return err == nil && r["refused"] != nil
}

// pages are the pages that compare with the papers.
var pages = []string{"benchmarks/results/papers.md", "docs/simulate.md"}

// TestPapers computes the numbers of the pages again.
func TestPapers(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates for a minute")
	}
	var all []statement
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		found, errs := statements(page, string(text))
		for _, err := range errs {
			if page == pages[0] { // the other has tables of flags
				t.Error(err)
			}
		}
		all = append(all, found...)
	}
	var lock sync.Mutex
	checked, stale := 0, 0
	t.Run("pages", func(t *testing.T) {
		for _, s := range all {
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(s.page), s.line), func(t *testing.T) {
				t.Parallel()
				n, wrong := s.check(runCommands(t, s.commands))
				for _, w := range wrong {
					t.Error(w)
				}
				lock.Lock()
				defer lock.Unlock()
				checked, stale = checked+n, stale+len(wrong)
			})
		}
	})
	t.Logf("%d numbers checked, %d stale", checked, stale)
}

const rightPage = `# Page

~~~
for n in 2 4; do
    rankpool-lab simulate --nopfs mnist --samples 512 --ranks $n --tiers 1GB,1kB,1GB \
        --systems perfect,naive,lbann-dynamic
done
~~~

With 2 workers naive takes 1.50
times as long.

<!-- numbers
"naive takes # times as long" := 1:naive.seconds / 1:perfect.seconds
:= 1000 * 1:.seconds; 1:.distinct | 1000 * 2:.seconds; \
    2:.distinct | _
-->
| | 2 | 4 | others | the text |
| --- | --- | --- | --- | --- |
| |naive| | 22.7, 512 | 11.3, 512 | 7 | 1.7 |
| |lbann-dynamic| | refused | refused | | |
| the text | 1 | 2 | | |

<!-- measured: 28 November 2026 -->
| | |
| --- | --- |
| a | 1 |
`

// TestPapersFindsStale checks that stale numbers are found, and numbers and tables that nothing
// checks.
func TestPapersFindsStale(t *testing.T) {
	page := strings.NewReplacer("|naive|", "`naive`", "|lbann-dynamic|", "`lbann-dynamic`", "~~~",
		"```").Replace(rightPage)
	found, _ := statements("page", page)
	results := runCommands(t, found[0].commands)
	for _, c := range []struct {
		now, was string
		checked  int
		wrong    string // "" for none
	}{
		{"", "", 5, ""},
		{"22.8, 512", "22.7, 512", 5, "stale: 22.8, now 22.7"},
		{"11.3, 513", "11.3, 512", 5, "stale: 513, now 512"},
		{"takes 1.51", "takes 1.50", 5, "stale: 1.51, now 1.50"},
		{"took 1.50", "takes 1.50", 4, `"naive takes # times as long" 0 times`},
		{"22.7, 512, 3", "22.7, 512", 3, "3 numbers, and there are 2 expressions"},
		{"| refused | 512 |", "| refused | refused |", 5, "1 numbers, and there are 2 expressions"},
		{"| many |", "| 22.7, 512 |", 3, "0 numbers, and there are 2 expressions"},
		{"other.seconds /", "naive.seconds /", 4, "names no result"},
		{"1:seconds", "1:.seconds", 4, "names no"},
		{"perfect.refused", "perfect.seconds", 4, "is not a number"},
		{"\n`perfect` := _\n:= ", "\n:= ", 5, `no row begins with`},
		{"\n`naive` := ", "\n:= ", 5, `no expression for the row`},
		{"", "<!-- measured: 28 November 2026 -->", 5, "no comment says"},
	} {
		if !strings.Contains(page, c.was) {
			t.Fatalf("the page has no %q", c.was)
		}
		found, errs := statements("page", strings.Replace(page, c.was, c.now, 1))
		checked, wrong := found[0].check(results)
		for _, err := range errs {
			wrong = append(wrong, err.Error())
		}
		if text := strings.Join(wrong, "\n"); checked != c.checked || c.wrong == "" && text != "" ||
			!strings.Contains(text, c.wrong) {
			t.Errorf("%q instead of %q: %d numbers checked, %q; want %d, %q", c.now, c.was, checked, text,
				c.checked, c.wrong)
		}
	}
}
