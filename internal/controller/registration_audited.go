// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// maxCEL is how long an expression may become that names leases. API servers refuse a policy with one of more than 100 000
// characters, and with it every change of the guards of all leases: what is longer comes in variables of its own.
const maxCEL = 60_000

// celParts cuts a list into parts of which none is longer than an expression may be: at least one, which may be empty.
func celParts[T any](all []T, length func(T) int) [][]T {
	parts, size := [][]T{nil}, 0
	for _, one := range all {
		last := len(parts) - 1
		if size += length(one); size > maxCEL && len(parts[last]) > 0 {
			parts, size, last = append(parts, nil), length(one), last+1
		}
		parts[last] = append(parts[last], one)
	}
	return parts
}

// celPart names the variable of a part. That of the only one has no number.
func celPart(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + strconv.Itoa(i)
}

// celVariables are the variables of parts.
func celVariables(name string, expressions []string) []admissionv1.Variable {
	variables := make([]admissionv1.Variable, len(expressions))
	for i, expression := range expressions {
		variables[i] = admissionv1.Variable{Name: celPart(name, i), Expression: expression}
	}
	return variables
}

// celAudited is the variable that lists the leases in Audit which guard where the request writes, behind those that it is
// made of. A lease is left out only for the resources' namespaces that it guards itself, so that it never opens another
// lease of its name.
func celAudited(guards []placed) []admissionv1.Variable {
	const name, part = "audited", "auditedPart"
	terms := celAuditedTerms(guards)
	parts := celParts(terms, func(term string) int { return len(term) })
	if len(parts) == 1 {
		return celVariables(name, []string{celSum(terms)})
	}
	sums, names := make([]string, len(parts)), make([]string, len(parts))
	for i := range parts {
		sums[i], names[i] = celSum(parts[i]), "variables."+celPart(part, i)
	}
	return append(celVariables(part, sums), admissionv1.Variable{Name: name, Expression: celSum(names)})
}

func celSum(terms []string) string {
	if len(terms) == 0 {
		return "[]"
	}
	return strings.Join(terms, " + ")
}

// celAuditedTerms are lists that are the list of the leases in Audit together.
func celAuditedTerms(guards []placed) []string {
	own := map[string]map[string]bool{}
	wide := map[string]map[string]bool{}
	for _, g := range guards {
		if !g.audit {
			continue
		}
		where, in := own, g.namespace
		if g.selector != nil {
			where, in = wide, celSelects(g.selector)
		}
		if where[in] == nil {
			where[in] = map[string]bool{}
		}
		where[in][g.lease] = true
	}
	// A namespace that has so many leases in Audit that they are in two parts is in two maps.
	type pair struct{ namespace, leases string }
	var pairs []pair
	for _, namespace := range sortedKeys(own) {
		for _, part := range celParts(sortedKeys(own[namespace]), func(lease string) int { return len(lease) + len("'', ") }) {
			pairs = append(pairs, pair{celString(namespace), celList(part)})
		}
	}
	terms := []string{}
	for _, part := range celParts(pairs, func(p pair) int { return 2*len(p.namespace) + len(p.leases) }) {
		var namespaces, entries []string
		for _, p := range part {
			namespaces, entries = append(namespaces, p.namespace), append(entries, p.namespace+": "+p.leases)
		}
		if len(part) > 0 {
			terms = append(terms, "(has(request.namespace) && request.namespace in ["+strings.Join(namespaces, ", ")+"] ? {"+
				strings.Join(entries, ", ")+"}[request.namespace] : [])")
		}
	}
	for _, selects := range sortedKeys(wide) {
		for _, part := range celParts(sortedKeys(wide[selects]), func(lease string) int { return len(lease) + len("'', ") }) {
			terms = append(terms, "("+selects+" ? "+celList(part)+" : [])")
		}
	}
	return terms
}
