// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func jwt(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(payload)) + ".c2lnbmF0dXJl"
}

func TestParseBearerToken(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	text := jwt(`{"jti":"0b7e3e4a","iat":1000,"exp":1600,"aud":["x"]}`)
	got, err := parseBearerToken(text, now)
	want := bearerToken{text: text, id: "JTI=0b7e3e4a", requested: now, lifetime: 10 * time.Minute}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(bearerToken{})); diff != "" || err != nil {
		t.Errorf("token (-want +got), error %v:\n%s", err, diff)
	}
	for name, text := range map[string]string{
		"nothing":              "",
		"no JSON web token":    "0123456789abcdef",
		"no base64":            "a.!.b",
		"no JSON":              jwt(`{`),
		"no claims":            jwt(`[]`),
		"no id":                jwt(`{"iat":1000,"exp":1600}`),
		"no times":             jwt(`{"jti":"a"}`),
		"an end before it":     jwt(`{"jti":"a","iat":1600,"exp":1000}`),
		"an id that is no one": jwt(`{"jti":1,"iat":1000,"exp":1600}`),
	} {
		if got, err := parseBearerToken(text, now); !errors.Is(err, errNotUsable) || got.text != "" {
			t.Errorf("%s: want an error, got %+v, %v", name, got, err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	content := func() string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	names := func() []string {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	publish := func(token string) {
		t.Helper()
		f, err := newTokenFile(path, token)
		if err != nil {
			t.Fatal(err)
		}
		defer f.discard()
		if err := f.publish(); err != nil {
			t.Fatal(err)
		}
	}

	publish("first")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || content() != "first" {
		t.Errorf("mode %v, content %q, error %v", info.Mode(), content(), err)
	}
	waiting, err := newTokenFile(path, "second")
	if err != nil || content() != "first" {
		t.Errorf("before it is published: content %q, error %v", content(), err)
	}
	waiting.discard()
	publish("third")
	if diff := cmp.Diff([]string{"token"}, names()); diff != "" || content() != "third" {
		t.Errorf("files (-want +got), content %q:\n%s", content(), diff)
	}

	if err := removeToken(path, "first"); err != nil || content() != "third" {
		t.Errorf("the file of another token was removed: %v", err)
	}
	if err := removeToken(path, "third"); err != nil || len(names()) != 0 {
		t.Errorf("the file is still there: %v, %v", names(), err)
	}
	if err := removeToken(path, "third"); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := newTokenFile(filepath.Join(dir, "none", "token"), "x"); !errors.Is(err, errNotUsable) {
		t.Errorf("a folder that is missing: %v", err)
	}
	if f, err := newTokenFile("", "x"); err != nil || f.publish() != nil {
		t.Errorf("no file: %v", err)
	}
}
