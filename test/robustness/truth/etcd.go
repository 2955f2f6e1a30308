// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// store talks to a member of etcd by its JSON gateway.
type store struct {
	url    string
	client *http.Client
}

func newStore(url string) *store {
	return &store{url: url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

type header struct {
	Revision int64 `json:"revision,string"`
}

type keyValue struct {
	Key            []byte `json:"key"`
	Value          []byte `json:"value"`
	CreateRevision int64  `json:"create_revision,string"`
	ModRevision    int64  `json:"mod_revision,string"`
}

type change struct {
	Type     string    `json:"type"`
	KV       keyValue  `json:"kv"`
	Previous *keyValue `json:"prev_kv"`
}

type watchAnswer struct {
	Result struct {
		Header          header   `json:"header"`
		Created         bool     `json:"created"`
		Canceled        bool     `json:"canceled"`
		CancelReason    string   `json:"cancel_reason"`
		CompactRevision int64    `json:"compact_revision,string"`
		Events          []change `json:"events"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

// all is the range of all keys.
var all = []byte{0}

func (s *store) post(ctx context.Context, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("%s answers %s: %s", path, response.Status, text), response.Body.Close())
	}
	return response, nil
}

// call sends a request that has one answer.
func (s *store) call(ctx context.Context, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	response, err := s.post(ctx, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("decode answer of %s: %w", path, err)
	}
	return nil
}

// read returns everything that is stored at a revision, 0 for the newest, and the revision of the store.
func (s *store) read(ctx context.Context, revision int64) ([]keyValue, int64, error) {
	answer := struct {
		Header header     `json:"header"`
		KVs    []keyValue `json:"kvs"`
	}{}
	err := s.call(ctx, "/v3/kv/range", map[string]any{"key": all, "range_end": all, "revision": revision}, &answer)
	return answer.KVs, answer.Header.Revision, err
}

// put writes a key of the recorder's own.
func (s *store) put(ctx context.Context, key string) (int64, error) {
	answer := struct {
		Header header `json:"header"`
	}{}
	err := s.call(ctx, "/v3/kv/put", map[string]any{"key": []byte(key), "value": []byte("x")}, &answer)
	return answer.Header.Revision, err
}

// errLost means that the store has compacted what the watch has not seen.
var errLost = errors.New("history is lost")

// watch hands out all changes from a revision on until it fails or take does. It ends when nothing came for the patience.
func (s *store) watch(ctx context.Context, from int64, patience time.Duration, take func([]change) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(patience, cancel)
	defer idle.Stop()
	response, err := s.post(ctx, "/v3/watch", map[string]any{
		"create_request": map[string]any{"key": all, "range_end": all, "start_revision": from, "prev_kv": true},
	})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for decoder := json.NewDecoder(response.Body); ; {
		var answer watchAnswer
		if err := decoder.Decode(&answer); err != nil {
			return err
		}
		idle.Reset(patience)
		result := answer.Result
		switch {
		case len(answer.Error) > 0:
			return fmt.Errorf("watch answers %s", answer.Error)
		case result.CompactRevision > 0:
			return fmt.Errorf("%w: revision %d was asked for, the store begins at %d", errLost, from, result.CompactRevision)
		case result.Canceled:
			return fmt.Errorf("watch was cancelled: %s", result.CancelReason)
		}
		if err := take(result.Events); err != nil {
			return err
		}
	}
}
