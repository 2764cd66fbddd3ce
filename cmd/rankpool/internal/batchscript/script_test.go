package batchscript

import (
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
		"a\nb 'unclosed\nc":                      nil,
		"diff <(a b) c":                          {{"diff", "<(a b)", "c"}},
		"export A=1 B; [[ -d $x ]]; ((x++))":     nil,
	} {
		var got [][]string
		s, _ := readShell(text)
		for _, c := range s.commands {
			got = append(got, c.words)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestParseCommandAttributes(t *testing.T) {
	s, err := readShell("A=1 B=2\nC=3 a | b &\nexport D=4; c || d\n\ne \\\n $f\n(g; h) &\ni \\ \n")
	if err != nil {
		t.Fatal(err)
	}
	want := []command{
		{2, []string{"a"}, false},
		{2, []string{"b"}, false},
		{3, []string{"c"}, false},
		{3, []string{"d"}, false},
		{5, []string{"e", "$f"}, false},
		{7, []string{"g"}, false},
		{7, []string{"h"}, false},
		{8, []string{"i", " "}, true},
	}
	if !reflect.DeepEqual(s.commands, want) {
		t.Errorf("%+v, want %+v", s.commands, want)
	}
	if !reflect.DeepEqual(s.assigned, map[string]bool{"A": true, "B": true, "C": true, "D": true}) ||
		!reflect.DeepEqual(s.uses, []line{{6, "f"}}) {
		t.Errorf("sets %v, uses %v", s.assigned, s.uses)
	}
}

func TestParseOptions(t *testing.T) {
	for text, want := range map[string]string{
		"--nodes=4 --ntasks-per-node 2 a": "nodes=4 ntasks-per-node=2",
		"-N4 -n 8 -c=2":                   "nodes=4 ntasks=8 cpus-per-task=2",
		"-K --kill-on-bad-exit=0 a -N2":   "= kill-on-bad-exit=0 nodes=2",
		"--mpi=pmix --site=1 -% a":        "mpi=pmix site=1 =a",
		"--overlap --job-name=\"my\"":     "overlap= job-name=my",
		"-N":                              "nodes=",
		"- --":                            "=",
	} {
		var got []string
		for _, o := range parseOptions(strings.Fields(text), 1) {
			got = append(got, o.name+"="+o.value)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestRequest(t *testing.T) {
	for text, want := range map[string]request{
		"-N 2-4 -n 8 --gpus=a100:8":                  {2, 4, 4},
		"--gpus-per-node=v100:3 --ntasks-per-node=3": {1, 3, 3},
		"-N2 --gpus-per-node=4 --ntasks-per-gpu=1":   {2, 4, 4},
		"--gres=gpu":                          {1, 1, 1},
		"--gres=gpu:v100:2,nvme:1,gpu:a100:1": {1, 1, 3},
		"--nodes=many --ntasks=99999999999999999999 --gpus=-1": {1, 1, 1},
	} {
		if got := newRequest(parseOptions(strings.Fields(text), 1)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
