// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

// Edit is one replacement.
type Edit struct {
	// File is the path of a file of the product below the module's root.
	File string
	// Old is what is replaced, which is there exactly once.
	Old, New string
}

// Mutant is a change of the product that breaks a promise.
type Mutant struct {
	// Name says what the mutant does not do any more, or does wrongly.
	Name string
	// Check is the name of the check that must notice it.
	Check string
	// Holder says that what is mutated is a program of holders, and not the manager.
	Holder bool
	Edits  []Edit
}

const (
	decideFile     = "internal/fence/decide.go"
	writeFile      = "internal/fence/write.go"
	credentialFile = "internal/fence/credential.go"
	handlerFile    = "internal/webhook/fencing/handler.go"
	readsFile      = "internal/leaseview/reads.go"
	viewFile       = "internal/leaseview/view.go"
	floorFile      = "internal/controller/floor.go"
	policiesFile   = "internal/controller/registration_policies.go"
	auditedFile    = "internal/controller/registration_audited.go"
	webhooksFile   = "internal/controller/registration_webhooks.go"
	probeFile      = "internal/controller/probe.go"
	sealedFile     = "internal/fence/sealed.go"
	leaseFile      = "internal/fence/lease.go"
	sweepFile      = "internal/controller/seal/sweep.go"
	watchFile      = "internal/controller/seal/watch.go"
	sealingFile    = "internal/controller/sealing.go"
	stampFile      = "internal/controller/registration_seal.go"
	possessionFile = "internal/possession/patch.go"
)

// All returns the mutants.
func All() []*Mutant {
	return []*Mutant{
		{
			Name: "the mark is not looked at", Check: TokenBelowMark,
			Edits: []Edit{{decideFile, "if token.Compare(presented, d.mark) < 0 && !d.markMayBeDeleted() {", "if false {"}},
		},
		{
			Name: "a cached lease admits", Check: StaleCache,
			Edits: []Edit{{decideFile, `		return d.deny(StaleToken, d.sayStale())
	}
	if d.view.Origin == Cached {`, `		return d.deny(StaleToken, d.sayStale())
	}
	if d.view.Origin == Cached && presented.Generation > lease.Generation {`}},
		},
		{
			Name: "the term is ignored", Check: OtherTerm,
			Edits: []Edit{{decideFile, "case !termsAgree(presented, lease):", "case false:"}},
		},
		{
			Name: "an inherited annotation counts as presented", Check: Inherited,
			Edits: []Edit{{writeFile, "had && before == value {", "had && before == value && false {"}},
		},
		{
			Name: "a released lease admits", Check: ReleasedLease,
			Edits: []Edit{{decideFile, "case lease.Holder == \"\":", "case false:"}},
		},
		{
			Name: "a token of the future is current", Check: FutureToken,
			Edits: []Edit{{decideFile, "case presented.Generation > lease.Generation:", "case false:"}, {
				decideFile, "func termsAgree(t token.Token, lease Lease) bool { return t.Term == \"\" || t.Term == lease.Term }",
				"func termsAgree(t token.Token, lease Lease) bool { return t.Term == \"\" || t.Term == lease.Term || t.Generation > lease.Generation }",
			}},
		},
		{
			Name: "the floor of a new lease is zero", Check: LeaseAnew,
			Edits: []Edit{{floorFile, "floor := version\n", "floor := version - version\n"}},
		},
		{
			Name: "system writers are known by their user alone", Check: SystemUser,
			Edits: []Edit{{
				writeFile, "return collector && w.Change == ChangeOwnership || (collector || migrator) && w.Change == ChangeNothing",
				"return collector || migrator",
			}},
		},
		{
			Name: "a read that runs already is joined", Check: JoinedRead,
			Edits: []Edit{{readsFile, "	if sl.next == nil {\n", `	if sl.running != nil {
		sl.running.callers++
		return sl.running, nil
	}
	if sl.next == nil {
`}},
		},
		{
			Name: "status writes are not asked about", Check: TableStatus,
			Edits: []Edit{{webhooksFile, "placedFor(resolved.placed, true), nil, admissionv1.Update)", "[]placed{}, nil, admissionv1.Update)"}},
		},
		{
			Name: "status writes are judged in the validating phase", Check: CurrentStatus,
			Edits: []Edit{
				{webhooksFile, "placedFor(resolved.placed, true), nil, admissionv1.Update)", "[]placed{}, nil, admissionv1.Update)"},
				{webhooksFile, "probe.Name(probe.Guards, hash), placedFor(resolved.placed, false),", "probe.Name(probe.Guards, hash), resolved.placed,"},
			},
		},
		{
			Name: "a scale is judged without its object", Check: TokenBelowMark,
			Edits: []Edit{{handlerFile, "	r.showStored(stored)\n", ""}},
		},
		{
			Name: "an override helps a stale token", Check: OverrideOfStale,
			Edits: []Edit{
				{handlerFile, "if verdict.Reason != fence.MissingToken && verdict.Reason != fence.FinalDelete {", "if verdict.Outcome != fence.Deny {"},
				{decideFile, `		return d.deny(StaleToken, d.sayEnded())
	default:
		return d.withToken()`, `		return d.deny(StaleToken, d.sayEnded())
	case w.Override.Reason != "" && w.Override.Permitted:
		return Verdict{Outcome: Allow, Reason: Overridden}
	default:
		if verdict := d.withToken(); verdict.Outcome != Deny || d.view.Origin != Cached {
			return verdict
		}
		return Verdict{Outcome: NeedsRead, Reason: NotFresh}`},
			},
		},
		{
			Name: "the mark policy lets marks fall", Check: PolicyAlone,
			Edits: []Edit{{policiesFile, "Expression: \"variables.lost.size() == 0\",", "Expression: \"true\","}},
		},
		{
			Name: "a lease in Audit opens the marks of its name everywhere", Check: PolicyAlone,
			Edits: []Edit{{
				auditedFile, `"(has(request.namespace) && request.namespace in ["+strings.Join(namespaces, ", ")+"] ? {"+
				strings.Join(entries, ", ")+"}[request.namespace] : [])"`,
				`"({"+strings.Join(entries, ", ")+"})["+namespaces[0]+"]"`,
			}},
		},
		{
			Name: "a late release names no term", Check: LateRelease, Holder: true,
			Edits: []Edit{
				{possessionFile, "Generation     int64              `json:\"generation\"`", "Generation     int64              `json:\"generation,omitempty\"`"},
				{possessionFile, "Term           string             `json:\"term\"`", "Term           string             `json:\"term,omitempty\"`"},
				{possessionFile, "return Patch{Status: PatchStatus{Generation: t.Generation, Term: t.ID, HolderIdentity: \"\"}}", "return Patch{Status: PatchStatus{HolderIdentity: \"\"}}"},
			},
		},
		{
			Name: "the probe always says in force", Check: NotInForce,
			Edits: []Edit{{probeFile, "	switch {\n	case err == nil:\n		return ProbeNotYet,", "	switch {\n	case kind != \"\":\n		return ProbeInForce, \"\"\n	case err == nil:\n		return ProbeNotYet,"}},
		},
		{
			Name: "a credential of an ended term is one of the current", Check: TableCredential,
			Edits: []Edit{{credentialFile, "return CredentialEnded, c.Term", "return CredentialCurrent, c.Term"}},
		},
		{
			Name: "the update before the final delete is like any other", Check: LastFinalizer,
			Edits: []Edit{{writeFile, "	return w.New.Finalizers == 0\n", "	return false\n"}},
		},
		{
			Name: "a delete intent outlives its term", Check: TableDelete,
			Edits: []Edit{{decideFile, "d.mark.Generation == lease.Generation && termsAgree(d.mark, lease) && lease.Holder != \"\"", "lease.Holder != \"\""}},
		},
		{
			Name: "a lease that cannot be read admits", Check: UnreadableLease,
			Edits: []Edit{{handlerFile, "answer = refuseUnavailable(r, err)", "_ = refuseUnavailable(r, err)"}},
		},
		{
			Name: "the fast path asks for no seal", Check: StaleCache,
			Edits: []Edit{{
				sealedFile, "lease.Handover == v1alpha1.HandoverSeal && lease.Holder != \"\" && lease.SealedGeneration == lease.Generation &&",
				"(lease.Handover == v1alpha1.HandoverSeal || lease.Holder != \"\") &&",
			}},
		},
		{
			Name: "the fast path asks for a seal of this term only", Check: LazyAfterSeal,
			Edits: []Edit{{
				sealedFile, "lease.Handover == v1alpha1.HandoverSeal && lease.Holder != \"\" &&",
				"(lease.Handover == v1alpha1.HandoverSeal || lease.Holder != \"\") &&",
			}},
		},
		{
			Name: "the fast path does not look at the mark", Check: StaleSealedTerm,
			Edits: []Edit{
				{sealedFile, "isOf(d.mark, lease) && isOf(d.presented, lease)", "isOf(d.presented, lease)"},
				{
					decideFile, "if token.Compare(presented, d.mark) < 0 && !d.markMayBeDeleted() {",
					"if token.Compare(presented, d.mark) < 0 && !d.markMayBeDeleted() && (d.view.Origin != Cached || !d.sealed()) {",
				},
			},
		},
		{
			Name: "the fast path is for guards with selectors, too", Check: OutOfTheSelector,
			Edits: []Edit{{leaseFile, "return g.NamespaceSelector == nil && selectsAll(g.ObjectSelector) &&", "return (g.NamespaceSelector == nil || selectsAll(g.ObjectSelector)) &&"}},
		},
		{
			Name: "a seal stamps nothing", Check: TableSeal,
			Edits: []Edit{{sweepFile, "	needed, verdict := s.needsStamp(w.target, object)\n	if !needed {", "	needed, verdict := s.needsStamp(w.target, object)\n	if !needed || verdict != current {"}},
		},
		{
			Name: "a seal does not wait for its stamps", Check: UnfinishedSeal,
			Edits: []Edit{
				{sweepFile, "	defer stamps.Wait()\n", ""},
				{sweepFile, "options.Continue == \"\" || ctx.Err() != nil {\n			stamps.Wait()\n", "options.Continue == \"\" || ctx.Err() != nil {\n"},
			},
		},
		{
			Name: "a seal goes by a list from before the lease was read", Check: UnfinishedSeal,
			Edits: []Edit{
				{sweepFile, "		page, err := objects.List(ctx, options)\n", `		page, err := listedBefore(string(s.order.UID)+w.target.Resource.String()+w.namespace+options.Continue,
			func() (*metav1.PartialObjectMetadataList, error) { return objects.List(ctx, options) })
`},
				{sweepFile, "// sweep is one look through", `var listsBefore sync.Map

func listedBefore(key string, list func() (*metav1.PartialObjectMetadataList, error)) (*metav1.PartialObjectMetadataList, error) {
	if page, known := listsBefore.Load(key); known {
		return page.(*metav1.PartialObjectMetadataList), nil
	}
	page, err := list()
	if err == nil {
		listsBefore.Store(key, page)
	}
	return page, err
}

// sweep is one look through`},
			},
		},
		{
			Name: "a replica answers with older guards than those that it is called for", Check: OlderGuards,
			Edits: []Edit{{viewFile, "v.current.Load().reached(resourceVersion)", "v.current.Load().reached(\"\")"}},
		},
		{
			Name: "a term writes before its seal", Check: EarlyWrite,
			Edits: []Edit{{decideFile, "	case lease.sealPending():\n", "	case false:\n"}},
		},
		{
			Name: "a seal begins before its guards are in force", Check: SealBeforeGuards,
			Edits: []Edit{{sealingFile, "if found.known && found.verdict.inForce {", "if found.known {"}},
		},
		{
			Name: "a late create is like any other object", Check: TableLateCreate,
			Edits: []Edit{{watchFile, "if what == watch.Added && verdict == older {", "if what == watch.Added && verdict == current {"}},
		},
		{
			Name: "a stamp is known by its user alone", Check: StampLookalike,
			Edits: []Edit{{stampFile, "\"object.metadata.generation == oldObject.metadata.generation\"", "\"true\""}},
		},
	}
}
