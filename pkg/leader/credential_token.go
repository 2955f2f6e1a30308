// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// errNotUsable means that a token cannot be a credential, or its file cannot be written, and that another attempt ends in
// the same way.
var errNotUsable = errors.New("token cannot be used")

// bearerToken is a token as the API server issued it.
type bearerToken struct {
	text string
	// id is what the API server tells of requests that are made with it.
	id string
	// requested is when it was requested, by the clock of this process. It has a monotonic reading.
	requested time.Time
	lifetime  time.Duration
}

// parseBearerToken reads the claims of a token. Both times in them are the API server's, so that their difference says how
// long the token is valid, whatever the clocks show.
func parseBearerToken(text string, requested time.Time) (bearerToken, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return bearerToken{}, fmt.Errorf("%w: it is no JSON web token", errNotUsable)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return bearerToken{}, fmt.Errorf("%w: decode its claims: %w", errNotUsable, err)
	}
	claims := struct {
		ID      string  `json:"jti"`
		Issued  float64 `json:"iat"`
		Expires float64 `json:"exp"`
	}{}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return bearerToken{}, fmt.Errorf("%w: decode its claims: %w", errNotUsable, err)
	}
	if claims.ID == "" {
		return bearerToken{}, fmt.Errorf("%w: it has no claim jti, by which a FencedLease could know it", errNotUsable)
	}
	lifetime := time.Duration((claims.Expires - claims.Issued) * float64(time.Second))
	if lifetime <= 0 {
		return bearerToken{}, fmt.Errorf("%w: it expires when it is issued", errNotUsable)
	}
	return bearerToken{text: text, id: v1alpha1.CredentialPrefix + claims.ID, requested: requested, lifetime: lifetime}, nil
}

// tokenFile is a file that is about to take the place of the token file.
type tokenFile struct{ path, temporary string }

// newTokenFile writes a token next to the file whose place it is to take. An empty path stands for no file.
func newTokenFile(path, token string) (*tokenFile, error) {
	f := &tokenFile{path: path}
	if path == "" {
		return f, nil
	}
	// Only its owner may read it: CreateTemp says so.
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, fmt.Errorf("%w: create its file: %w", errNotUsable, err)
	}
	f.temporary = temporary.Name()
	_, err = temporary.WriteString(token)
	if err = errors.Join(err, temporary.Close()); err != nil {
		f.discard()
		return nil, fmt.Errorf("%w: write its file: %w", errNotUsable, err)
	}
	return f, nil
}

// publish puts the file into its place in one step.
func (f *tokenFile) publish() error {
	if f.temporary == "" {
		return nil
	}
	if err := os.Rename(f.temporary, f.path); err != nil {
		return fmt.Errorf("%w: put its file in place: %w", errNotUsable, err)
	}
	f.temporary = ""
	return nil
}

// discard removes the file unless it is in place.
func (f *tokenFile) discard() {
	if f.temporary != "" {
		_ = os.Remove(f.temporary) // nothing can be done about it
	}
}

// removeToken removes a token file if it still holds the token: that of the next term stays.
func removeToken(path, token string) error {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && string(text) != token:
		return nil
	case err == nil:
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove token file: %w", err)
	}
	return nil
}
