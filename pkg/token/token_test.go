// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// policyPattern is the least that an expression in the API server needs to read the generation of a mark.
var policyPattern = regexp.MustCompile(`^[0-9]{1,18}([./]|$)`)

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("9", 18) + ".k3v9x2ab/" + strings.Repeat("o", 128)
	for name, tc := range map[string]struct {
		text string
		want token.Token
	}{
		"a generation alone":                     {"48215", token.Token{Generation: 48215}},
		"the first generation":                   {"1", token.Token{Generation: 1}},
		"the last generation":                    {"999999999999999999", token.Token{Generation: token.MaxGeneration}},
		"a generation with zeros inside":         {"1000", token.Token{Generation: 1000}},
		"a generation and a term":                {"48215.k3v9x2ab", token.Token{Generation: 48215, Term: "k3v9x2ab"}},
		"a term of digits":                       {"7.00000000", token.Token{Generation: 7, Term: "00000000"}},
		"a generation, a term and an operation":  {"48215.k3v9x2ab/17", token.Token{Generation: 48215, Term: "k3v9x2ab", Operation: "17"}},
		"an operation without a term":            {"48215/17", token.Token{Generation: 48215, Operation: "17"}},
		"a delete intent":                        {"48215.k3v9x2ab/delete", token.Token{Generation: 48215, Term: "k3v9x2ab", Operation: token.OperationDelete}},
		"an operation of every kind of byte":     {"1/aZ09-_.:", token.Token{Generation: 1, Operation: "aZ09-_.:"}},
		"an operation that looks like a term":    {"1/.k3v9x2ab", token.Token{Generation: 1, Operation: ".k3v9x2ab"}},
		"an operation that is a single dot":      {"1/.", token.Token{Generation: 1, Operation: "."}},
		"the longest token that is well formed":  {longest, token.Token{Generation: token.MaxGeneration, Term: "k3v9x2ab", Operation: strings.Repeat("o", 128)}},
		"a generation above every plausible one": {"1000000000000001", token.Token{Generation: token.MaxPlausibleGeneration + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := token.Parse(tc.text)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tc.text, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tc.text, diff)
			}
			if diff := cmp.Diff(tc.text, got.String()); diff != "" {
				t.Errorf("String of Parse(%q) (-want +got):\n%s", tc.text, diff)
			}
			if !policyPattern.MatchString(tc.text) {
				t.Errorf("an expression in the API server cannot read %q", tc.text)
			}
		})
	}
	if got := len(longest); got != token.MaxLength {
		t.Errorf("MaxLength is %d, the longest token has %d", token.MaxLength, got)
	}
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	const (
		digitsOnly = "the generation must be decimal digits only"
		noZero     = "the generation must not be zero or start with a zero"
		termChars  = "the term may hold a-z and 0-9 only"
		opChars    = "the operation may hold letters, digits and the characters - _ . : only"
	)
	quoted := func(text, problem string) string { return `malformed fencing token "` + text + `": ` + problem }
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":                            {"", quoted("", "it is empty")},
		"a term alone":                       {".k3v9x2ab", quoted(".k3v9x2ab", "the generation is missing")},
		"an operation alone":                 {"/17", quoted("/17", "the generation is missing")},
		"a lone dot":                         {".", quoted(".", "the generation is missing")},
		"a lone slash":                       {"/", quoted("/", "the generation is missing")},
		"a word":                             {"leader", quoted("leader", digitsOnly)},
		"a negative generation":              {"-1", quoted("-1", digitsOnly)},
		"a plus sign":                        {"+1", quoted("+1", digitsOnly)},
		"a space before":                     {" 1", quoted(" 1", digitsOnly)},
		"a space behind":                     {"1 ", quoted("1 ", digitsOnly)},
		"a newline behind":                   {"1\n", quoted(`1\n`, digitsOnly)},
		"a NUL byte behind":                  {"1\x00", quoted(`1\x00`, digitsOnly)},
		"a hexadecimal generation":           {"0x1f", quoted("0x1f", digitsOnly)},
		"an exponent":                        {"1e5", quoted("1e5", digitsOnly)},
		"an underscore between digits":       {"1_000", quoted("1_000", digitsOnly)},
		"digits of another script":           {"٣٤", quoted("٣٤", digitsOnly)},
		"full-width digits":                  {"１", quoted("１", digitsOnly)},
		"bytes that are not UTF-8":           {"1\xff", quoted(`1\xff`, digitsOnly)},
		"generation zero":                    {"0", quoted("0", noZero)},
		"a leading zero":                     {"048215", quoted("048215", noZero)},
		"generation zero with a term":        {"0.k3v9x2ab", quoted("0.k3v9x2ab", noZero)},
		"nineteen digits":                    {"1000000000000000000", quoted("1000000000000000000", "the generation has 19 digits, at most 18 are allowed")},
		"more digits than an int64":          {"99999999999999999999", quoted("99999999999999999999", "the generation has 20 digits, at most 18 are allowed")},
		"nineteen digits led by a zero":      {"0999999999999999999", quoted("0999999999999999999", "the generation has 19 digits, at most 18 are allowed")},
		"an empty term":                      {"1.", quoted("1.", "the term has 0 characters, it must have 8")},
		"an empty term before an operation":  {"1./17", quoted("1./17", "the term has 0 characters, it must have 8")},
		"a term of seven":                    {"1.k3v9x2a", quoted("1.k3v9x2a", "the term has 7 characters, it must have 8")},
		"a term of nine":                     {"1.k3v9x2abc", quoted("1.k3v9x2abc", "the term has 9 characters, it must have 8")},
		"a capital in the term":              {"1.K3v9x2ab", quoted("1.K3v9x2ab", termChars)},
		"a hyphen in the term":               {"1.k3v9-2ab", quoted("1.k3v9-2ab", termChars)},
		"a second dot":                       {"1.k3v9.2ab", quoted("1.k3v9.2ab", termChars)},
		"a term that is too short in Greek":  {"1.αβγδ", quoted("1.αβγδ", termChars)},
		"a term of eight letters in Greek":   {"1.αβγδεζηθ", quoted("1.αβγδεζηθ", termChars)},
		"an empty operation":                 {"1/", quoted("1/", "the operation after the slash is empty")},
		"an empty operation after a term":    {"1.k3v9x2ab/", quoted("1.k3v9x2ab/", "the operation after the slash is empty")},
		"a second slash":                     {"1/a/b", quoted("1/a/b", opChars)},
		"a space in the operation":           {"1/a b", quoted("1/a b", opChars)},
		"an umlaut in the operation":         {"1/für", quoted("1/für", opChars)},
		"an operation of 129":                {"1/" + strings.Repeat("o", 129), quoted("1/"+strings.Repeat("o", 129), "the operation has 129 characters, at most 128 are allowed")},
		"a long operation in Greek":          {"1/" + strings.Repeat("ω", 70), quoted("1/"+strings.Repeat("ω", 70), opChars)},
		"the term is judged before the rest": {"1.x/ ", quoted("1.x/ ", "the term has 1 characters, it must have 8")},
		"one byte too many": {
			strings.Repeat("9", 18) + ".k3v9x2ab/" + strings.Repeat("o", 129),
			"malformed fencing token: it has 157 bytes, at most 156 are allowed",
		},
		"a megabyte": {strings.Repeat("1", 1<<20), "malformed fencing token: it has 1048576 bytes, at most 156 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := token.Parse(tc.text)
			if err == nil {
				t.Fatalf("Parse accepted it as %+v", got)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if !errors.Is(err, token.ErrMalformed) {
				t.Errorf("%v does not wrap ErrMalformed", err)
			}
			if !got.IsZero() {
				t.Errorf("Parse returned %+v with an error", got)
			}
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		generation int64
		term       string
		want       string
		wantErr    string
	}{
		"a generation and a term":        {48215, "k3v9x2ab", "48215.k3v9x2ab", ""},
		"no term":                        {48215, "", "48215", ""},
		"the last generation":            {token.MaxGeneration, "", "999999999999999999", ""},
		"generation zero":                {0, "", "", "malformed fencing token: generation 0 is outside 1 to 999999999999999999"},
		"a negative generation":          {-5, "k3v9x2ab", "", "malformed fencing token: generation -5 is outside 1 to 999999999999999999"},
		"a generation above the maximum": {token.MaxGeneration + 1, "", "", "malformed fencing token: generation 1000000000000000000 is outside 1 to 999999999999999999"},
		"a short term":                   {1, "abc", "", `malformed fencing token "1.abc": the term has 3 characters, it must have 8`},
		"a term with a slash":            {1, "abc/1234", "", `malformed fencing token "1.abc/1234": the term may hold a-z and 0-9 only`},
		"a term of a megabyte":           {1, strings.Repeat("x", 1<<20), "", "malformed fencing token: the term has 1048576 characters, it must have 8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := token.New(tc.generation, tc.term)
			checkResult(t, got, err, tc.want, tc.wantErr)
		})
	}
}

func TestWithOperation(t *testing.T) {
	t.Parallel()
	base := token.Token{Generation: 48215, Term: "k3v9x2ab"}
	for name, tc := range map[string]struct {
		token     token.Token
		operation string
		want      string
		wantErr   string
	}{
		"a first operation":           {base, "17", "48215.k3v9x2ab/17", ""},
		"another operation":           {token.Token{Generation: 1, Operation: "16"}, "17", "1/17", ""},
		"no operation any more":       {token.Token{Generation: 1, Operation: "16"}, "", "1", ""},
		"an operation of 128":         {token.Token{Generation: 1}, strings.Repeat("o", 128), "1/" + strings.Repeat("o", 128), ""},
		"a slash in the operation":    {base, "a/b", "", `malformed fencing token "48215.k3v9x2ab/a/b": the operation may hold letters, digits and the characters - _ . : only`},
		"a long operation":            {base, strings.Repeat("o", 129), "", `malformed fencing token "48215.k3v9x2ab/` + strings.Repeat("o", 129) + `": the operation has 129 characters, at most 128 are allowed`},
		"an operation of a megabyte":  {base, strings.Repeat("o", 1<<20), "", "malformed fencing token: the operation has 1048576 characters, at most 128 are allowed"},
		"an operation on no token":    {token.Token{}, "17", "", "malformed fencing token: the zero token can have no operation"},
		"no operation on no token":    {token.Token{}, "", "0", ""},
		"an operation that is a line": {base, "a\nb", "", `malformed fencing token "48215.k3v9x2ab/a\nb": the operation may hold letters, digits and the characters - _ . : only`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := tc.token
			got, err := tc.token.WithOperation(tc.operation)
			checkResult(t, got, err, tc.want, tc.wantErr)
			if diff := cmp.Diff(before, tc.token); diff != "" {
				t.Errorf("the receiver changed (-want +got):\n%s", diff)
			}
		})
	}
}

func checkResult(t *testing.T, got token.Token, err error, want, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil {
			t.Fatalf("got %v, want an error", got)
		}
		if diff := cmp.Diff(wantErr, err.Error()); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		if !errors.Is(err, token.ErrMalformed) {
			t.Errorf("%v does not wrap ErrMalformed", err)
		}
		if !got.IsZero() {
			t.Errorf("got %+v with an error", got)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("token (-want +got):\n%s", diff)
	}
}

func TestCompareOrdersByGenerationAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b string
		want int
	}{
		"an older generation":                    {"33", "34", -1},
		"a newer generation":                     {"34", "33", +1},
		"numbers are not compared as texts":      {"9", "10", -1},
		"another term of the same generation":    {"34.aaaaaaaa", "34.bbbbbbbb", 0},
		"another operation of the same term":     {"34.aaaaaaaa/1", "34.aaaaaaaa/2", 0},
		"a term against none":                    {"34.aaaaaaaa", "34", 0},
		"a later term does not outdo generation": {"33.zzzzzzzz", "34.aaaaaaaa", -1},
		"the ends of the range":                  {"1", "999999999999999999", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := mustParse(t, tc.a), mustParse(t, tc.b)
			if got := token.Compare(a, b); got != tc.want {
				t.Errorf("Compare(%s, %s) = %d, want %d", a, b, got, tc.want)
			}
			if got := token.Compare(b, a); got != -tc.want {
				t.Errorf("Compare(%s, %s) = %d, want %d", b, a, got, -tc.want)
			}
		})
	}
	if got := token.Compare(token.Token{}, mustParse(t, "1")); got != -1 {
		t.Errorf("no token compares as %d with the first token, want -1", got)
	}
}

func TestPlausible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"1": true, "1000000000000000": true, "1000000000000001": false, "999999999999999999.k3v9x2ab/1": false,
	} {
		if got := mustParse(t, text).Plausible(); got != want {
			t.Errorf("%s plausible: %v, want %v", text, got, want)
		}
	}
}

func TestPossession(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"34.k3v9x2ab/17": "34.k3v9x2ab", "34.k3v9x2ab": "34.k3v9x2ab", "34/17": "34", "34": "34",
	} {
		if diff := cmp.Diff(want, mustParse(t, text).Possession().String()); diff != "" {
			t.Errorf("possession of %s (-want +got):\n%s", text, diff)
		}
	}
}

func mustParse(t *testing.T, text string) token.Token {
	t.Helper()
	parsed, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestOperationsThatAreRecorded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"34": false, "34/delete": false, "34/_": false, "34/_17": false, "34/17": true, "34/-": true, "34/delete-17": true, "34/a_": true,
	} {
		parsed, err := token.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Business(); got != want {
			t.Errorf("%s is recorded: want %v, got %v", text, want, got)
		}
	}
}
