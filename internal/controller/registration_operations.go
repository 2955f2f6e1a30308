// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// defaultHistory is the limit of a guard that names none. The schema sets no default: the list of guards is atomic, so who
// applies the same manifest a second time, under another name of a field manager, would find himself in conflict with it.
const defaultHistory = 32

// celBusiness matches the end of a token with a business operation, together with a look for the delete intent.
const celBusiness = "/[-.:A-Za-z0-9][-_.:A-Za-z0-9]{0,127}$"

// celIsRecords is true if the key k is that of an annotation with records of operations.
const celIsRecords = "k.startsWith('" + v1alpha1.OperationsPrefix + "')"

// celTime is the form of a record's time. Days that no calendar has are of that form, too: see operation.Find.
const celTime = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"

// celHasRecord is true if the text of stored records holds one of an operation, as operation.Find says it. A text that only
// begins like one must not stand in for a record: nobody would find it. The look for the beginning is cheap, and for nearly
// all writes the end.
func celHasRecord(stored, operation string) string {
	return "((' ' + " + stored + ").contains(' ' + " + operation + " + '=') && " + stored + ".split(' ').exists(r, r.startsWith(" + operation + " + '=') && " +
		"r.substring(" + operation + ".size()).matches('^=[1-9][0-9]{0,17}(@" + celTime + ")?$')))"
}

// celIsBusiness is true if a token carries an operation that is recorded.
func celIsBusiness(text string) string {
	return "(" + text + ".matches('" + celBusiness + "') && !" + text + ".endsWith('/" + token.OperationDelete + "'))"
}

// celPresentsBusiness is true if a write sets a token annotation with such an operation.
func celPresentsBusiness() string {
	value, old := "object.metadata.annotations[k]", "oldObject.metadata.annotations"
	return celHasAnnotation("object", celIsMark+" && "+celIsBusiness(value)+
		" && !(oldObject != null && has("+old+") && k in "+old+" && "+old+"[k] == "+value+")")
}

// celLimits is a map of the limits that are not the default, by place, resource and lease: the largest limit of all guards
// of a lease for a resource. The place of a wide guard is *; in the lease's own namespace it counts with the others there.
// It comes in parts that API servers can read, at least one.
func celLimits(guards []placed) []string {
	const anywhere = "*"
	limits, wideAtHome := map[string]int32{}, map[string]int32{}
	raise := func(limits map[string]int32, key string, limit int32) {
		if known, ok := limits[key]; !ok || limit > known {
			limits[key] = limit
		}
	}
	for _, g := range guards {
		what := " " + g.Group + "/" + g.Resource + " " + g.lease
		switch {
		case g.subresource != "":
		case g.selector != nil:
			raise(limits, anywhere+what, g.history)
			raise(wideAtHome, g.home+what, g.history)
		default:
			raise(limits, g.namespace+what, g.history)
		}
	}
	for key, limit := range wideAtHome {
		if _, ok := limits[key]; ok {
			raise(limits, key, limit)
		}
	}
	var pairs []string
	for _, key := range sortedKeys(limits) {
		_, what, _ := strings.Cut(key, " ")
		wide, shadowed := limits[anywhere+" "+what]
		if limits[key] != defaultHistory || shadowed && wide != defaultHistory {
			pairs = append(pairs, celString(key)+": "+strconv.Itoa(int(limits[key])))
		}
	}
	var maps []string
	for _, part := range celParts(pairs, func(pair string) int { return len(pair) }) {
		maps = append(maps, "{"+strings.Join(part, ", ")+"}")
	}
	return maps
}

// celLimit is the limit of the lease of the key k, where the limits come in so many parts.
func celLimit(parts int) string {
	var found strings.Builder
	for _, place := range []string{"variables.here", "variables.anywhere"} {
		for i := range parts {
			limits := "variables." + celPart("limits", i)
			found.WriteString("(" + place + " + " + celLease + ") in " + limits + " ? " + limits + "[" + place + " + " + celLease + "] : ")
		}
	}
	return "(" + found.String() + strconv.Itoa(defaultHistory) + ")"
}

const (
	celHere     = "(has(request.namespace) ? request.namespace : '') + ' ' + request.resource.group + '/' + request.resource.resource + ' '"
	celAnywhere = "'* ' + request.resource.group + '/' + request.resource.resource + ' '"
	// celClock is the newest time among the fields' managers: that of the API server's clock for a write that changes
	// something. CEL has no clock of its own.
	celClock = "object != null && has(object.metadata.managedFields) && object.metadata.managedFields.exists(f, has(f.time)) ? " +
		"'@' + object.metadata.managedFields.filter(f, has(f.time)).map(f, string(f.time)).max() : ''"
	// celMoved is true if the fields' managers show that the request changes something.
	celMoved = "object != null && (oldObject == null || object.metadata.?managedFields != oldObject.metadata.?managedFields)"
)

// celRecord is the list of the operations that record an operation: text is the expression of the token that the write
// presents for the lease of the key k, clock that of what is added to the record as its time, and limit that of the limit. A record of the operation
// that is there already stays, and so does everything where the limit is 0: what the writer itself has made of the
// annotation is undone.
func celRecord(text, clock, limit string) string {
	lease := celLease
	key := "('" + v1alpha1.OperationsPrefix + "' + " + lease + ")"
	stored := "(" + key + " in variables.stored ? variables.stored[" + key + "] : '')"
	operation := text + ".split('/')[1]"
	records := stored + ".split(' ')"
	kept := "(" + stored + " == '' ? [] : " + records + ".slice(0, " + records + ".size() < " + limit + " ? " + records + ".size() : " + limit + " - 1))"
	record := operation + " + '=' + " + fmt.Sprintf(celDigits, text) + " + " + clock
	stays := "(" + limit + " == 0 || " + celHasRecord(stored, operation) + ")"
	return "(" + stays + " ? " +
		"(" + stored + " == '' ? [] : [" + celAddAnnotation(key, stored) + "]) : " +
		"[" + celAddAnnotation(key, "(["+record+"] + "+kept+").join(' ')") + "])"
}

// celTakesRecords is true if an update leaves out records of operations that are stored.
func celTakesRecords() string {
	return celHasAnnotation("oldObject", celIsRecords+" && !(k in "+celAnnotations+")")
}

// celKept is the list of the operations that put back the records which a write leaves out: an apply takes away what its
// field manager has applied before, and that is also the record of an operation that it has presented.
func celKept() string {
	return "variables.stored.transformList(k, v, " + celIsRecords + " && !(k in variables.now), " + celAddAnnotation("k", "v") + ")"
}

// celRecorded is the list of the operations that record the business operations which a write presents.
func celRecorded(limit string) string {
	record := func(tokens, clock string) string {
		return "variables." + tokens + ".transformList(k, v, " + celIsBusiness("v") + ", " + celRecord("v", clock, limit) + ").flatten()"
	}
	return record("carried", "(variables.moved ? variables.clock : '')") + " + " + record("written", "variables.clock")
}

// celForged is the list of the records of operations that a write changes in any other way than the stamping policy does:
// one record in front, of the operation that the write presents, and behind it the newest of those that are stored. How many
// of those stay is the stamping policy's own: the two may know different limits for a moment.
func celForged(audited string) string {
	lease := fmt.Sprintf("k.substring(%d)", len(v1alpha1.OperationsPrefix))
	key := "('" + v1alpha1.TokenPrefix + "' + " + lease + ")"
	enforced := "!(" + lease + " in " + audited + ")"
	mark := "variables.now[" + key + "]"
	stored := "(k in variables.stored ? variables.stored[k] : '')"
	first := "v.split(' ')[0]"
	operation := mark + ".split('/')[1]"
	legitimate := strings.Join([]string{
		key + " in variables.now",
		mark + ".matches('" + celToken + "')",
		celIsBusiness(mark),
		"(!(" + key + " in variables.stored) || variables.stored[" + key + "] != " + mark + " || (has(request.userInfo.extra) && " + key + " in request.userInfo.extra && " + mark + " in request.userInfo.extra[" + key + "]))",
		first + ".split('@')[0] == " + operation + " + '=' + " + fmt.Sprintf(celDigits, mark),
		"(!" + first + ".contains('@') || " + first + ".substring(" + first + ".indexOf('@') + 1).matches('^" + celTime + "$'))",
		"!" + celHasRecord(stored, operation),
		"(!v.contains(' ') || " + stored + " != '' && (" + stored + " + ' ').startsWith(v.substring(v.indexOf(' ') + 1) + ' '))",
	}, " && ")
	return "variables.stored.transformList(k, v, " + celIsRecords + " && " + enforced + " && !(k in variables.now), k) + " +
		"variables.now.transformList(k, v, " + celIsRecords + " && " + enforced + " && !(k in variables.stored && variables.stored[k] == v) && !(" + legitimate + "), k)"
}
