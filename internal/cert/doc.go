// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cert gives every replica of the manager a serving certificate for the webhook, without files and without
// another component in the cluster. The webhook fails closed, so a certificate that API servers do not trust is an outage
// of every guarded write. The package is built so that a rotation has no such moment.
//
// # Parts
//
// One Secret holds the state: the CA that signs, the CA that will sign next if a rotation is under way, and the
// certificates of CAs that no longer sign but are still trusted. Each write of it raises its revision.
//
// Authority runs on every replica. It follows the Secret, signs a short-lived leaf in memory and serves it by
// GetCertificate.
//
// Rotator runs on the elected replica. It creates the first CA, takes the state from one step of a rotation to the next,
// and hands out the bundle that the webhook configurations must trust.
//
// Files and FileBundles take the places of the two where somebody else makes certificates, such as cert-manager, and a folder has
// them: see Files.
//
// # A rotation from CA n to CA n+1
//
//  1. CA n+1 is stored beside n. n signs.
//  2. The bundle {n, n+1} is handed out, after it was stored.
//  3. All webhook configurations have been read and carry the bundle, and from then on without a break for the settle
//     margin, which is longer than an API server needs to notice a changed configuration. Only the memory and the clock of
//     the replica that is elected then count: a new one waits anew.
//  4. n+1 is stored as the one that signs; each replica signs a new leaf, once it too has seen that the configurations
//     have trusted n+1 for the settle margin. n is kept as trusted. The bundle stays what it was.
//  5. n leaves the state, then the bundle, when no leaf that it signed can be valid any more.
//
// Step 5 holds for a replica that is cut off too. A replica signs only if it read the Secret at most MaxReadAge ago, so the
// last leaf of n is signed at most that long after step 4, and n is kept for MaxReadAge plus the life of a leaf plus the
// difference that clocks may have.
//
// Every step is one conditional write of the Secret. A replica that dies before or after it leaves a state from which the
// next one goes on; a bundle is handed out only after the state that it belongs to was stored.
//
// # Damage
//
// Each replica remembers the newest state that it has seen, with the keys. If the Secret is deleted, unreadable or
// replaced by a state that does not continue that one (an older revision, or CAs of a different origin), the replica keeps
// serving and writes its memory back, with everything that the installed configurations trust kept in the bundle. Every
// replica may do so, since the elected one may have just started and know nothing; conditional writes leave one winner, and
// the newest state wins in the end. What the installed configurations trust is the judge where two states have nothing in
// common.
//
// A replica without memory serves no leaf before it has seen that the installed configurations trust the CA that signed it
// (or trust nothing at all yet), so a Secret that was replaced while it started leads to no failed call but to a replica
// that is not ready. If it is the elected one, it keeps what the configurations trust in the bundle: other replicas may
// serve leaves of that, and nobody signs with a CA of the replaced Secret before it has been distributed.
//
// # Permissions
//
// On the named Secret: get, watch and update, all limitable by resourceNames, as the watch selects the one name. Create in
// its namespace. And what Options.InstalledBundles needs to read the webhook configurations, on every replica.
package cert
