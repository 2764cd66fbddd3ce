package batchscript

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseCommands(t *testing.T) {
	for text, want := range map[string][][]string{
		"a 'b c' \"d $e\" f\\ g":                 {{"a", "b c", "d $e", "f g"}},
		"a \\\n  b # c\nd":                       {{"a", "b"}, {"d"}},
		"a && b || c; d | e & f":                 {{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}},
		"a >out 2>&1 <in &>all b":                {{"a", "b"}},
		"a $(b \")\" $(c)) d `e f`":              {{"a", "$(b \")\" $(c))", "d", "`e f`"}},
		"a <<END b\ntext (\nEND\nc":              {{"a", "b"}, {"c"}},
		"a <<-'END'\n\tx\n\tEND\nb <<<here c":    {{"a"}, {"b", "c"}},
		"if a; then b; else c; fi":               {{"a"}, {"b"}, {"c"}},
		"for x in 1 2; do a $x; done":            {{"a", "$x"}},
		"while read x; do a; done <file":         {{"read", "x"}, {"a"}},
		"case $x in a) b ;; esac":                {{"b"}},
		"f() { a; }; (b; c)":                     {{"a"}, {"b"}, {"c"}},
		"function f { a; }; function g() { b; }": {{"a"}, {"b"}},
		"case x in\n(a|b) c | d ;;\n@(e|f)) (g) ;&\nh) ;;& *) case y in i) j ;; " +
			"esac\nk\nesac\nl": {{"c"}, {"d"}, {"g"}, {"j"}, {"k"}, {"l"}},
		"a case x in; (b)":                       {{"a", "case", "x", "in"}, {"b"}},
		"a() b; c":                               {{"b"}, {"c"}},
		"list=(a b); x=1 a":                      {{"a"}},
		"a ${x#y} $# b#c ''":                     {{"a", "${x#y}", "$#", "b#c", ""}},
		"a \"b \\\"c\\\" \\d\" \"$(e \"f g\")\"": {{"a", "b \"c\" \\d", "$(e \"f g\")"}},
		"! time a":                               {{"a"}},
		"a\nb 'unclosed\nc":                      {{"a"}},
		"diff <(a b) c":                          {{"diff", "<(a b)", "c"}},
		"export A=1 B; [[ -d $x ]]; ((x++))": {
			{"export", "A=1", "B"}, {"[[", "-d", "$x", "]]"}, {"((x++))"},
		},
	} {
		var got [][]string
		for _, c := range commandsOf(text) {
			if len(c.Words) > 0 {
				got = append(got, c.Words)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// commandsOf returns the commands of a text, up to an error in it.
func commandsOf(text string) []Command {
	commands, _ := readCommands(text)
	return commands
}

func TestParseCommandAttributes(t *testing.T) {
	commands := commandsOf("A=1 B=2\nC=3 a | b &\nc || d\n\ne \\\n f\n")
	type attributes struct {
		line                int
		env                 int
		background, guarded bool
	}
	var got []attributes
	for _, c := range commands {
		got = append(got, attributes{c.Line, len(c.Env), c.Background, c.Guarded})
	}
	want := []attributes{
		{1, 2, false, false},
		{2, 1, true, false},
		{2, 0, true, false},
		{3, 0, false, true},
		{3, 0, false, true},
		{5, 0, false, false},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestParseOptions(t *testing.T) {
	for text, want := range map[string]string{
		"--nodes=4 --ntasks-per-node 2 a":  "nodes=4 ntasks-per-node=2 | a",
		"-N4 -n 8 -lu -c=2":                "nodes=4 ntasks=8 label unbuffered cpus-per-task=2 |",
		"-K --kill-on-bad-exit=0 a -N2":    "kill-on-bad-exit kill-on-bad-exit=0 | a -N2",
		"--overl --tasks-per-node=3 -- -a": "overlap ntasks-per-node=3 | -a",
		"--nod=4":                          "nod=4? |", // nodes, nodefile, nodelist
		"--site=1 -% a":                    "site=1? %? | a",
		"-N":                               "nodes |",
		"-":                                "| -",
	} {
		options, rest := parseOptions(strings.Fields(text), 1, srunTable)
		var got []string
		for _, o := range options {
			word := o.Name
			if o.HasValue {
				word += "=" + o.Value
			}
			if o.unknown {
				word += "?"
			}
			got = append(got, word)
		}
		if got := strings.Join(append(append(got, "|"), rest...), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestRequest(t *testing.T) {
	for text, want := range map[string]request{
		"-N 2-4 -n 8 --gpus=a100:8 --mem=2G": {
			nodes: 2, tasksPerNode: 4, gpusPerNode: 4, memoryBytes: 2 << 30, memoryGiven: true,
		},
		"--gpus-per-task=1 --ntasks-per-node=3 --mem=0": {
			nodes: 1, tasksPerNode: 3, gpusPerNode: 3, memoryGiven: true,
		},
		"-N2 -n8 --gpus-per-task=1": {
			nodes: 2, tasksPerNode: 4, gpusPerNode: 4,
		},
		"--mem-per-cpu=4G --cpus-per-gpu=8 --gpus-per-node=4 " +
			"--ntasks-per-node=4": {
			nodes: 1, tasksPerNode: 4, gpusPerNode: 4, memoryBytes: 128 << 30,
			memoryGiven: true,
		},
		"--gres=gpu --mem-per-gpu=3": {
			nodes: 1, gpusPerNode: 1, memoryBytes: 3 << 20, memoryGiven: true,
		},
		"--gres=gpu:v100:2,gpu:a100:1 --mem=99999999999T": {
			nodes: 1, gpusPerNode: 3, memoryGiven: true,
		},
		"--nodes=many --ntasks=99999999999999999999 --gpus=-1": {nodes: 1},
	} {
		options, _ := parseOptions(strings.Fields(text), 1, sbatchTable)
		if got := newRequest(options); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestTimeSeconds(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "10": 600, "1:30": 90, "1:0:1": 3601, "1-12": 36 * 3600, "1-0:1": 24*3600 + 60,
		"2-1:1:1": 49*3600 + 61,
		"":        -1, "4h": -1, "1:1:1:1": -1, "-1": -1, "1-": -1, "1-1:1:1:1": -1, "99999-1": -1,
	} {
		got, ok := timeSeconds(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"a\x00b", strings.Repeat("x", MaxBytes+1)} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), "batchscript: ") {
			t.Errorf("the error is %v", err)
		}
	}
}

// FuzzCheck parses and checks any text: line numbers must exist, and warnings must be complete.
func FuzzCheck(f *testing.F) {
	golden, err := filepath.Glob("../../testdata/sbatch/*.sh")
	if err != nil || len(golden) == 0 {
		f.Fatal("no golden scripts", err)
	}
	for _, name := range golden {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(head + "trap 'x' USR1\nsrun -K -N2 --mpi rankpool run -\n<<\n$(\n${\n`\n\"\n")
	f.Add("#SBATCH -\n#SBATCH --=\n#SBATCH \\\n#SBATCH '\n" + "exec\nexport\nset\nrankpool serve --")
	facts := testFacts()
	f.Fuzz(func(t *testing.T, text string) {
		script, err := Parse(text)
		if err != nil {
			return
		}
		lines := strings.Count(text, "\n") + 1
		for _, c := range script.Commands {
			if c.Line < 1 || c.Line > lines {
				t.Fatalf("a command in line %d of %d: %+v", c.Line, lines, c)
			}
		}
		for _, w := range Check(script, facts) {
			if w.Line < 1 || w.Line > lines || w.What == "" || w.Advice == "" || w.Check == "" {
				t.Fatalf("no good warning: %+v", w)
			}
		}
	})
}
