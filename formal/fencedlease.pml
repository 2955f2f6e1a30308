/*
 * Copyright 2026 The FencedLease Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A FencedLease, one guarded object, the API server's loop of admission and commit, the webhook with its cache, the
 * controller that seals, and a store that can be restored. README.md says what each action stands for in the product, and
 * what is left out.
 *
 * Sizes and parts are chosen by -D:
 *   TERMS      terms that can be begun (each by any leader; the same one may come again)
 *   WRITES     writes in flight at once
 *   REPLICAS   replicas of the webhook, each with a cache of its own
 *   SEALS      handover: Seal exists, with its controller and the fast path of the webhook
 *   TOLAZY     spec.handover can be changed, in both directions, at any time
 *   RECREATES  how often the lease can be deleted and created anew
 *   RESTORES   the store can be restored from a snapshot, once
 *   LEASEBACK  the lease alone can go back to an earlier state, once; the object stays
 *   TERMLESS   writers present the generation alone
 *   SEEN       the floor of a restored lease is raised before anybody acquires it
 *   LATEDELETES  spec.lateCreates is Delete
 * Each guard can be taken out by a -D of its own; they are all listed in variants.go.
 */

#ifndef TERMS
#define TERMS 3
#endif
#ifndef WRITES
#define WRITES 2
#endif
#ifndef REPLICAS
#define REPLICAS 1
#endif

/* Operations of a write. */
#define UPDATE  1 /* of the main resource: moves the mark in the same commit */
#define STATUS  2 /* of the status: moves no mark */
#define DELETE  3
#define CREATE  4
#define INHERIT 5 /* an update that leaves the stored annotation as it is */

/*
 * The lease in the store. A term is known by its number in the order of acquisitions, which stands for the holder, too:
 * real terms are random and never come again. What the writers of a term present is the pair of gen[term] and term.
 */
typedef Lease {
	bit  exists;
	bit  floored;  /* the controller has set the first status */
	bit  held;     /* holderIdentity is not empty */
	byte g;        /* generation */
	byte t;        /* term */
	byte floor;    /* generationFloor */
	byte inc;      /* which lease of that name it is: its uid */
#ifdef SEALS
	bit  seals;    /* status.handover is Seal */
	bit  required; /* status.seal is Required */
	byte sg;       /* sealedGeneration */
#endif
};

/* The guarded object in the store. */
typedef Object {
	bit  exists;
	byte mg; /* generation of the mark, 0 if there is none */
	byte mt; /* term of the mark */
	byte last; /* ghost: the term whose write was committed last */
#ifdef SEALS
	bit  late; /* created under an older term after the seal's list, and not stamped yet: an event of the watch says so */
#ifdef LATEDELETES
	bit  asCreated; /* nobody has written it since */
#endif
#endif
};

Lease  lease;
Lease  cache[REPLICAS]; /* the webhook's copies of the lease, of any age */
Object object;

/* The term that a token of the term shows. */
#ifdef TERMLESS
#define termOf(term) 0
#else
#define termOf(term) term
#endif

byte terms;           /* terms begun so far */
byte gen[TERMS + 1];  /* the generation of each term */
byte handedOut;       /* ghost: the highest generation of this history of the store */
bit  changed[WRITES]; /* the object's resourceVersion is not the one that the write was judged on */

#ifdef RECREATES
byte revision;        /* of the store: a lower bound, counting changes of the lease only */
byte createdAt;       /* the resourceVersion at which the lease was created */
bit  registered = 1;  /* the registration of the present lease is in force: Ready */
#else
#define registered true
#endif

#ifdef SEALS
bit  specSeal;        /* spec.handover is Seal */
byte sealed;          /* ghost: the latest term that was sealed */
byte listed;          /* ghost: the latest term whose seal has listed the objects */
bit  removalChanged;  /* the object's resourceVersion is not that of the stamp any more */
bit  stampChanged;    /* the object's resourceVersion is not the one that the stamp was judged on */
#endif
/* A holder need not wait for the seal: the webhook refuses it until then. */
#define mayBegin(term) (terms >= term && (term != lease.t || registered))

#if defined(RESTORES) || defined(LEASEBACK)
bit  undone[TERMS + 1];/* ghost: the term belongs to a history that a restore has undone */
bit  saved;            /* a snapshot was taken */
bit  restored;
Lease  savedLease;
#endif
#ifdef RESTORES
Object savedObject;
byte savedHandedOut;
#ifdef SEALS
byte savedSealed;
byte savedListed;
#endif
#endif

/* What must never become true. */
bit fell;       /* an older term's write was committed after a newer one's */
bit tooLate;    /* a write was committed that had arrived after its term was over */
bit unsealed;   /* an older term's write was committed after a seal */
bit reused;     /* a generation was handed out that was not above all before */
bit revived;    /* a write of an undone history passed as current */
bit destroyed;  /* the removal of a late create took a write of the holder with it */

#define copyLease(to, from) \
	to.exists = from.exists; to.floored = from.floored; to.held = from.held; to.g = from.g; to.t = from.t; \
	to.floor = from.floor; to.inc = from.inc; copySeal(to, from)
#ifdef SEALS
#define copySeal(to, from) to.seals = from.seals; to.required = from.required; to.sg = from.sg
#define copyLate(to, from) to.late = from.late
#else
#define copySeal(to, from) skip
#define copyLate(to, from) skip
#endif
#define copyObject(to, from) \
	to.exists = from.exists; to.mg = from.mg; to.mt = from.mt; to.last = from.last; copyLate(to, from)

Lease none; /* stays zero */

#define max(a, b) ((a) > (b) -> (a) : (b))

/* The object has a new resourceVersion: whatever was judged on the old one is no longer. */
inline objectChanges() {
	changed[0] = 1;
#if WRITES > 1
	changed[1] = 1;
#endif
#if WRITES > 2
	changed[2] = 1;
#endif
#ifdef SEALS
	stampChanged = 1;
	removalChanged = 1
#endif
}

/* ------------------------------------------------------------------------------------------------------------------
 * Possession of the lease: the rules of the CRD.
 */

/* The least generation that a new term may have, and must have. */
#ifdef NO_FLOOR
#define nextGeneration (lease.g + 1)
#else
#define nextGeneration (max(lease.g, lease.floor) + 1)
#endif

#ifdef SEALS
#ifdef NO_SEAL_AFTER_SEAL_TERM
#define sealAfter false
#else
#define sealAfter lease.seals
#endif
#ifdef NO_SEAL_AFTER_UNSEALED
#define sealOwed false
#else
#define sealOwed (lease.required && lease.sg != lease.g)
#endif
#endif

proctype Possession() {
	byte g;
	do
	/* Anybody acquires at any time: the lease expires while its holder believes to lead, or was released. */
	:: d_step { lease.exists && lease.floored && terms < TERMS ->
		terms++;
#ifdef SAME_IDENTITY_KEEPS_GENERATION
		if
		:: lease.g > 0 && !lease.held -> g = lease.g
		:: else -> g = nextGeneration
		fi;
#else
		g = nextGeneration;
#endif
		if
		:: g <= handedOut -> reused = 1
		:: else -> handedOut = g
		fi;
		assert(!reused);
		gen[terms] = g;
#ifdef SEALS
		lease.required = specSeal || sealAfter || sealOwed;
		lease.seals = specSeal;
#endif
		lease.g = g;
		lease.t = terms;
		lease.held = 1;
#ifdef RECREATES
		revision++;
#endif
		g = 0
	}
	/* The holder releases; a late release names its own term and so changes nothing. */
	:: d_step { lease.exists && lease.held -> lease.held = 0 }
#ifdef TOLAZY
	:: d_step { lease.exists -> specSeal = !specSeal }
#endif
	od
}


/* ------------------------------------------------------------------------------------------------------------------
 * One write after the other: the API server shows the object to admission, the webhook judges, the API server commits if
 * the object is still the one that was shown, else it begins again. A write can be of any term, also of one that has ended
 * long ago: a leader pauses before it sends, and the request pauses wherever the process has a step.
 */

/* The holder's presented token and the stored mark as the decision sees them. */
#ifdef NO_MARK
#define markGeneration 0
#else
#define markGeneration object.mg
#endif

/* A denial that any cache may give: generations never fall. */
#ifdef RECREATES
/* The registration names the version of the leases it was built from, and a replica waits until it has that. */
#ifdef NO_WAIT_FOR_REGISTRATION
#define usable(c) true
#else
#define usable(c) (c.inc == lease.inc)
#endif
#else
#define usable(c) true
#endif

#ifdef SEALS
#ifdef FAST_PATH_IN_LAZY_TERMS
#define sealsTerm(c) true
#else
#define sealsTerm(c) c.seals
#endif
#ifdef FAST_PATH_UNSEALED
#define isSealed(c) true
#else
#define isSealed(c) (c.sg == c.g)
#endif
#if defined(FAST_PATH_IGNORES_MARK) || defined(NO_MARK)
#define sameMark(c) true
#else
#ifdef FAST_PATH_IGNORES_TERM_OF_MARK
#define sameMark(c) (object.mg == c.g)
#else
#define sameMark(c) (object.mg == c.g && object.mt == c.t)
#endif
#endif
#define opensFastPath(c) (c.exists && c.held && sealsTerm(c) && isSealed(c))
#define fastPath(c) (opensFastPath(c) && pg == c.g && pt == c.t && sameMark(c) && (op == UPDATE || op == STATUS))
#else
#define fastPath(c) false
#endif

/*
 * A replica's copy of the lease catches up, whenever it likes. Where terms are sealed, a copy that opens no fast path is
 * kept as none at all: it could only refuse, and whatever it refuses the read below may refuse as well.
 */
proctype Follow(byte replica) {
	do
#ifdef SEALS
	:: d_step { opensFastPath(lease) -> copyLease(cache[replica], lease) }
	:: d_step { !opensFastPath(lease) -> copyLease(cache[replica], none) }
#else
	:: d_step { copyLease(cache[replica], lease) }
#endif
	od
}

#ifdef NO_STALE_CHECK
#define staleBy(l) false
#else
#define staleBy(l) (pg < l.g)
#endif
#ifdef NO_BELOW_MARK
#define belowMark false
#else
#define belowMark (pg < markGeneration)
#endif
#ifdef NO_FUTURE_CHECK
#define future(l) false
#else
#define future(l) (pg > l.g)
#endif
#ifdef NO_TERM_CHECK
#define forked(l) false
#else
/* A token without a term agrees with every one. */
#define forked(l) (pt != 0 && pt != l.t)
#endif
#ifdef NO_RELEASE_CHECK
#define isReleased(l) false
#else
#define isReleased(l) (!l.held)
#endif
#if defined(SEALS) && !defined(NO_WAIT_FOR_SEAL)
/* The term's first write waits for its seal. */
#define sealPending(l) (l.required && l.sg != l.g)
#else
#define sealPending(l) false
#endif
#define refused(l) (belowMark || staleBy(l) || future(l) || forked(l) || isReleased(l) || sealPending(l))

/* For a lease that is not there, or whose guards are not in force yet, nothing is refused. */
#define unguarded (!lease.exists || !registered)

#ifdef READ_BEFORE_ARRIVAL
/* A read that ran already when the write arrived is shared with it: what it returns was taken before. */
Lease running;
proctype SharedRead() {
	do
	:: d_step { copyLease(running, lease) }
	od
}
#define theRead running
#else
#define theRead lease
#endif

#ifdef SEALS
#define isLate object.late
#else
#define isLate false
#endif

/* A lease that has gone back may be that of the request's term again. */
#ifdef LEASEBACK
#define sameHistory (history == restored)
#else
#define sameHistory true
#endif

inline commit() {
	/* What the write breaks if it is committed now. */
	if
	:: op != CREATE && !exempt && t < object.last && !(fast && isLate) -> fell = 1
	:: else
	fi;
	assert(!fell);
	if
	:: ended && !fast && !exempt && sameHistory -> tooLate = 1
	:: else
	fi;
	assert(!tooLate);
#ifdef RESTORES
	if
	:: undone[t] -> revived = 1
	:: else
	fi;
	assert(!revived);
#endif
#ifdef SEALS
	if
	:: op != CREATE && !exempt && t < sealed && !isLate -> unsealed = 1
	:: else
	fi;
	assert(!unsealed);
	if
	:: op == CREATE -> object.late = (t < listed)
	:: else
	fi;
#endif
#ifdef LATEDELETES
	object.asCreated = (op == CREATE);
#endif
	if
	:: op == DELETE ->
		object.exists = 0; object.mg = 0; object.mt = 0; object.last = 0;
#ifdef SEALS
		object.late = 0
#endif
	:: op == UPDATE || op == CREATE -> object.exists = 1; object.mg = gen[t]; object.mt = termOf(t); object.last = t
	:: else -> object.last = t /* status and inherited marks stay as they are */
	fi;
	objectChanges()
}

proctype Write(byte me) {
	byte op, t;      /* what is written, and under which term it was computed */
	byte pg, pt;     /* the token that the request presents */
	bit ended;       /* ghost: the term was over when the request arrived */
	bit exempt;      /* ghost: admitted while nothing guarded the object */
	bit fast;        /* ghost: admitted by a cache alone */
#if defined(RESTORES) || defined(LEASEBACK)
	bit history;     /* of the store when the request arrived */
#endif

idle:
	/* A leader sends a write of a term that it had, after a pause of any length; the API server shows the object. */
	atomic {
		if
		:: mayBegin(1) -> t = 1
		:: mayBegin(2) -> t = 2
#if TERMS > 2
		:: mayBegin(3) -> t = 3
#endif
#if TERMS > 3
		:: mayBegin(4) -> t = 4
#endif
		fi;
		if
		:: object.exists -> op = UPDATE
#ifndef LEASEBACK
		/* It moves no mark, so that a mark cannot tell of it when the lease has gone back. */
		:: object.exists -> op = STATUS
#endif
		:: object.exists -> op = DELETE
#ifndef SEALS
		:: object.exists -> op = INHERIT
#endif
		:: !object.exists -> op = CREATE
		fi;
		ended = (lease.t != t || !lease.held);
		changed[me] = 0;
#if defined(RESTORES) || defined(LEASEBACK)
		history = restored
#endif
	};

judged:
	/* The webhook judges. Judged is the object that was shown: if it is another one by now, no commit can follow. */
	atomic {
		if
#ifdef RESTORES
		:: history != restored -> goto done /* API servers are restarted with the store */
#endif
		:: changed[me] && op == CREATE -> goto done /* refused: it exists */
		:: changed[me] && op != CREATE && !object.exists -> goto done /* not found */
		:: changed[me] && op != CREATE && object.exists -> changed[me] = 0; goto judged
		:: else
		fi;
		pg = gen[t]; pt = termOf(t);
		if
		:: unguarded -> exempt = 1; goto admitted
		:: else
		fi;
		if
		:: op == INHERIT ->
			/* The annotation is as stored, so the request presents nothing. */
#ifdef INHERITED_PRESENTS
			pg = object.mg; pt = object.mt
#else
			goto done
#endif
		:: else
		fi;
		/* Of several replicas any one may be asked, also another one than the last time. */
		if
		:: usable(cache[0]) && pg < cache[0].g && cache[0].exists -> goto done
		:: usable(cache[0]) && fastPath(cache[0]) && !belowMark -> fast = 1; goto admitted
#if REPLICAS > 1
		:: usable(cache[1]) && pg < cache[1].g && cache[1].exists -> goto done
		:: usable(cache[1]) && fastPath(cache[1]) && !belowMark -> fast = 1; goto admitted
#endif
#ifdef ADMIT_FROM_CACHE
		:: cache[0].exists && !refused(cache[0]) -> goto admitted
#endif
		/* The linearizable read of the lease, and the verdict on it. */
		:: !refused(theRead) -> goto admitted
		:: refused(theRead) -> goto done
		fi
	};

admitted:
	/* The pause between the check and the commit. */
	atomic {
		pg = 0; pt = 0;
		if
#ifdef RESTORES
		:: history != restored -> goto done
#endif
#ifdef NO_READMISSION
		:: changed[me] && (object.exists == (op != CREATE)) -> commit(); goto done
		:: changed[me] && (object.exists != (op != CREATE)) -> goto done
#else
		:: changed[me] -> fast = 0; exempt = 0; goto judged
#endif
		:: !changed[me] -> commit(); goto done
		fi
	};

done:
	atomic {
		op = 0; t = 0; pg = 0; pt = 0; ended = 0; exempt = 0; fast = 0; changed[me] = 0;
#if defined(RESTORES) || defined(LEASEBACK)
		history = 0;
#endif
		goto idle
	}
}

/* ------------------------------------------------------------------------------------------------------------------
 * Writers that present nothing and touch the mark. Both are refused, to everybody, by the policy and by the decision.
 */
#if defined(MARK_MAY_VANISH) || defined(MARK_MAY_FALL)
proctype Anybody() {
	do
#ifdef MARK_MAY_VANISH
	:: d_step { object.exists && object.mg > 0 -> object.mg = 0; object.mt = 0; objectChanges() }
#endif
#ifdef MARK_MAY_FALL
	:: d_step { object.exists && object.mt > 1 -> object.mt--; object.mg = gen[object.mt]; objectChanges() }
#endif
	od
}
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * The seal.
 */
#ifdef SEALS
/* A stamp on its way. It outlives the controller that sent it. */
bit  stampSent;
byte stampG, stampT;
bit  stampOutcome; /* the controller knows what became of it */
bit  stamped;      /* it was committed */

#ifdef LATEDELETES
#define clearRemoving removing = 0
#ifdef REMOVAL_AFTER_CONFLICT
#define removable 1
#else
#define removable object.asCreated
#endif
/* The object is another one than was created: somebody has written it since. */
#ifdef REMOVAL_AFTER_CONFLICT
#define lostRace skip
#else
#define lostRace removing = 0
#endif
#else
#define clearRemoving skip
#define lostRace skip
#endif
#define needsStamp (object.exists && object.mg <= sealG && !(object.mg == sealG && object.mt == sealT))

/* The status write of the seal goes by the term that was sealed, not by the number alone. */
#ifdef SEAL_BY_NUMBER
#define sealHolds (lease.exists && lease.g >= sealG && lease.sg <= sealG)
#else
#define sealHolds (lease.exists && lease.t == sealT)
#endif

proctype Controller() {
	byte sealG, sealT; /* the term that is being sealed, by a live read */
	bit  following;    /* sealed, and watching */
#ifdef LATEDELETES
	bit  removing;     /* what is being stamped was created late */
#endif
#if defined(RESTORES) && !defined(CONTROLLER_SURVIVES_RESTORE)
	bit  history;      /* of the store when the controller was started */
#define restarted (history != restored)
#define takeHistory history = restored
#define clearHistory history = 0
#else
#define restarted false
#define takeHistory skip
#define clearHistory skip
#endif

begin:
	atomic {
		lease.exists && registered && lease.required && lease.sg != lease.g ->
		takeHistory;
		sealG = lease.g; sealT = lease.t; following = 0
	};

list:
	/* A consistent list of the guarded objects, begun after the lease was read. */
	atomic {
		if
		:: restarted -> goto crash
		:: else
		fi;
#ifdef LIST_FROM_CACHE
		if
		:: object.exists -> listed = sealT; goto finish /* the list is older than the object */
		:: true
		fi;
#endif
		listed = sealT
	};

stamp:
	atomic {
#ifdef LATEDELETES
		/* The stamp goes by the version of the event; by another one the object is not as it was created. */
		if
		:: !removable -> removing = 0
		:: else
		fi;
#endif
		if
		:: restarted -> goto crash
		:: else
		fi;
		if
		/* It pauses on its way, and may outlive the controller. */
		:: needsStamp && !stampSent -> stampSent = 1; stampG = sealG; stampT = sealT; stampChanged = 0; stampOutcome = 0
		/* It does not. One of an earlier controller may still be on its way. */
		:: needsStamp ->
			object.mg = sealG; object.mt = sealT; object.late = 0;
			objectChanges();
			removalChanged = 0;
			goto finish
		:: !needsStamp -> clearRemoving; goto finish
		:: true -> goto crash
		fi
	};
#ifdef NO_WAIT_FOR_STAMPS
	goto finish;
#endif

await:
	/* Done, or a conflict: get the object again and judge again. */
	atomic {
		if
		:: stampOutcome && stamped -> stampOutcome = 0; stamped = 0; goto finish
		:: stampOutcome && !stamped -> stampOutcome = 0; lostRace; goto stamp
		:: true -> goto crash
		fi
	};

finish:
	atomic {
		if
		:: restarted -> goto crash
		:: following && !restarted -> goto follow
		:: !following && !restarted && sealHolds ->
			lease.sg = sealG;
			if
			:: lease.t == sealT -> sealed = sealT
			:: else
			fi;
			following = 1
		:: !following && !restarted && !sealHolds -> goto crash
		fi
	};

follow:
	/*
	 * The watch from the list on: what turns up with an older mark is stamped for the rest of the term. What was created
	 * after the list is removed after that, if the lease says so and it is still as it was stamped.
	 */
	atomic {
		if
#ifdef LATEDELETES
		:: !restarted && needsStamp && lease.exists && lease.t == sealT && object.late -> removing = removable; goto stamp
		:: !restarted && !needsStamp && removing ->
			if
#ifdef NO_REMOVAL_CONDITION
			:: object.exists ->
#else
			:: object.exists && !removalChanged ->
#endif
				if
				:: object.last >= sealT -> destroyed = 1
				:: else
				fi;
				assert(!destroyed);
				object.exists = 0; object.mg = 0; object.mt = 0; object.last = 0; object.late = 0; object.asCreated = 0;
				objectChanges()
			:: else
			fi;
			removing = 0; goto follow
#endif
		:: !restarted && needsStamp && lease.exists && lease.t == sealT -> goto stamp
		:: true -> goto crash /* also: another term has begun */
		fi
	};

crash:
	atomic { sealG = 0; sealT = 0; following = 0; stampOutcome = 0; stamped = 0; clearHistory; clearRemoving; goto begin }
}

/* The API server commits the stamp if the object is still the one that it was judged on. */
proctype Stamp() {
	do
	:: d_step { stampSent ->
		if
#ifdef NO_STAMP_CONDITION
		:: object.exists ->
#else
		:: !stampChanged && object.exists ->
#endif
			object.mg = stampG; object.mt = stampT;
			object.late = 0;
			objectChanges();
			removalChanged = 0;
			stamped = 1
		:: else -> stamped = 0
		fi;
		stampSent = 0; stampG = 0; stampT = 0; stampChanged = 0; stampOutcome = 1
	}
	od
}

#endif

/* ------------------------------------------------------------------------------------------------------------------
 * The lease is deleted and created anew.
 */
#ifdef RECREATES
proctype Recreate() {
	byte n;
	do
	:: d_step { lease.exists && n < RECREATES ->
		n++;
		lease.exists = 0; lease.floored = 0; lease.held = 0; lease.g = 0; lease.t = 0; lease.floor = 0;
#ifdef SEALS
		lease.seals = 0; lease.required = 0; lease.sg = 0;
#endif
		registered = 0
	}
	:: atomic { !lease.exists ->
#ifdef SEALS
		if
		:: specSeal = 0
		:: specSeal = 1
		fi;
		lease.seals = specSeal;
#endif
		revision++; createdAt = revision;
		lease.exists = 1; lease.inc++
	}
	/* The first status: the floor is the resourceVersion that the lease was read at, or a higher mark. */
	:: d_step { lease.exists && !lease.floored ->
#ifdef NO_FLOOR
		skip;
#else
		lease.floor = max(createdAt, object.mg);
#endif
		lease.floored = 1
	}
	:: d_step { lease.exists && !registered -> registered = 1 }
	od
}
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * A snapshot of the store is taken at any time, and the store restored from it at any later one. API servers are restarted
 * with it, so requests that they have are gone. Writers, replicas and the controller go on.
 */
#if defined(RESTORES) || defined(LEASEBACK)
proctype Restore() {
	byte i, highest;
	d_step { copyLease(savedLease, lease);
#ifdef RESTORES
		copyObject(savedObject, object); savedHandedOut = handedOut;
#ifdef SEALS
		savedSealed = sealed; savedListed = listed;
#endif
#endif
		saved = 1
	};
	d_step {
		for (i : 1 .. TERMS) {
			if
			:: i <= terms && i > savedLease.t -> undone[i] = 1; highest = max(highest, gen[i])
			:: else
			fi
		}
		i = 0;
		copyLease(lease, savedLease);
#ifdef RESTORES
		copyObject(object, savedObject); handedOut = savedHandedOut;
#ifdef SEALS
		sealed = savedSealed; listed = savedListed;
		savedSealed = 0; savedListed = 0;
		/* A stamp that an API server has is gone with it. */
		stampSent = 0; stampG = 0; stampT = 0; stampOutcome = 0; stamped = 0;
#endif
		objectChanges();
		copyLease(savedLease, none);
		savedObject.exists = 0; savedObject.mg = 0; savedObject.mt = 0; savedObject.last = 0;
		savedHandedOut = 0;
#else
		handedOut = lease.g;
#endif
#ifdef SEEN
		lease.floor = max(lease.floor, highest);
#endif
		restored = 1
	};
	/* A replica's copy, a mark or a token shows a generation above the lease's: the floor is raised to it, or not yet. */
	do
	:: d_step { lease.exists && lease.floor < highest -> lease.floor = highest }
	od
}
#endif

init {
	d_step {
		lease.exists = 1; lease.floored = 1;
#ifdef RECREATES
		revision = 1; createdAt = 1; lease.floor = 1;
#endif
#ifdef SEALS
		specSeal = 1; lease.seals = 1;
#endif
		copyLease(cache[0], lease);
#if REPLICAS > 1
		copyLease(cache[1], lease);
#endif
	};
	atomic {
		run Possession();
		run Write(0);
#if WRITES > 1
		run Write(1);
#endif
#if WRITES > 2
		run Write(2);
#endif
		run Follow(0);
#if REPLICAS > 1
		run Follow(1);
#endif
#ifdef READ_BEFORE_ARRIVAL
		run SharedRead();
#endif
#if defined(MARK_MAY_VANISH) || defined(MARK_MAY_FALL)
		run Anybody();
#endif
#ifdef SEALS
		run Controller();
		run Stamp();
#endif
#ifdef RECREATES
		run Recreate();
#endif
#if defined(RESTORES) || defined(LEASEBACK)
		run Restore();
#endif
	}
}
