//! SecLang, the rule language of ModSecurity, and its engine, for the OWASP Core Rule Set 4 and other rules. No I/O.
//!
//! # Order of calls
//!
//! [`RuleSet::compile`] makes an immutable set from texts, [`RuleSet::compile_behind`] one that shares the rules of another
//! set; a [`RuleFiles`] of the caller reads the files that rules refer to. [`Services`] holds what transactions share: the clock, the store of collections, limits. For each request,
//! [`Transaction::new`], [`Transaction::uri`], [`Transaction::request_header`] for each header,
//! [`Transaction::request_headers`] (phase 1), [`Transaction::request_body`] (phase 2), [`Transaction::response_header`]
//! for each header, [`Transaction::response_headers`] (phase 3), [`Transaction::response_body`] (phase 4) and
//! [`Transaction::log`] (phase 5). A phase returns a [`Verdict`]; after one that is not [`Verdict::Pass`], the caller
//! answers the request and calls [`Transaction::log`]. A phase that needs an answer of DNS waits: [`Transaction::wanted_names`],
//! [`Transaction::answer_name`] for each of them, and [`Transaction::resume`] go before the next call. [`Transaction::matches`] has the rules that matched, with lines
//! for the error log, and [`Transaction::audit_text`] the text for the audit log.
//!
//! # Errors
//!
//! A rule that cannot be honoured is a [`RuleError`] with file, line, column, reason and suggestion; a directive that is
//! accepted without an effect is a [`RuleWarning`]. Requests cause no errors: a body that cannot be read sets
//! `REQBODY_ERROR`, an exhausted limit of PCRE2 `MSC_PCRE_LIMITS_EXCEEDED`.
//!
//! # Limits
//!
//! [`Budget`] bounds steps, work (by the [`WorkClock`] of the caller) and memory of a transaction, and
//! [`Services::exhausted`] is the answer at its end. It is checked between evaluations of operators: one evaluation takes
//! at most the pattern's size times the value's length.
//! Each value is looked at once, and rules that could not match it are left out (`screen`); a pattern is compiled for the
//! first value that it could match, in some milliseconds; [`prepare_patterns`] compiles those of ordinary requests.
//! Patterns are matched in linear time by `regex-automata`; those with look-around, back references or possessive
//! quantifiers by PCRE2 with at most [`MATCH_STEPS_MAX`] steps (`SecPcreMatchLimit`). JSON is read to a depth of 128, XML
//! to 200,000 nodes without external entities, multipart to 10,000 parts; `SecArgumentsLimit` is 1,000 without a
//! directive. An expanded macro has at most 1 MB, a transaction 1,000 matches, [`MemoryStore`] 16 MB.
//!
//! # Differences from ModSecurity v3
//!
//! - Phases 2 and 4 are evaluated also if the access to bodies is off, as in ModSecurity 2; variables of the body are
//!   not set then.
//! - `REQUEST_BODY` has no multipart and no XML body that could be read, unless `ctl:forceRequestBodyVariable=On`, as
//!   in ModSecurity 2.
//! - `noauditlog` does not silence the error log, and `MATCHED_VARS` are those of the last link, as in ModSecurity 2.
//!   A match with `capture` removes numbers up to `TX.9` that it does not set.
//! - `drop` closes the connection, where libmodsecurity answers 403. Rules of phase 5 cannot disrupt.
//! - `initcol` comes before `setvar` of the same rule. `ENV` has only variables of `setenv`.
//! - `ctl:ruleRemoveTargetById` and its kind accept patterns (`ARGS:/re/`) and compare names without case;
//!   `ctl:ruleRemoveByMsg` and `ctl:ruleRemoveTargetByMsg` exist.
//! - `XML:` has paths of `/`, `//`, names, `*`, `@` and `text()`; other expressions of XPath are errors of the rule.
//! - JSON numbers are normalized (`1.0` is `1`). Numbers of operators have 64 bits.
//! - `MULTIPART_UNMATCHED_BOUNDARY` is 0 for a body without a deviation. `FILES_TMP_CONTENT` has the content of files;
//!   `FILES_TMPNAMES` is empty, since no file is written.
//! - `skipAfter` without its marker, and unknown or unsupported variables, operators, actions and directives are errors.
//! - `DURATION` is in milliseconds, `TIME_WDAY` counts from Sunday (0), `TIME_MON` from 1.
//! - Refused: `exec`, `SecRuleScript`, `SecRemoteRules`, `@inspectFile`, `@fuzzyHash`, `@gsbLookup`, `@rsub`,
//!   `@validateDTD`, `@validateSchema`, `@validateHash`, `sanitise*`, `append`, `prepend`, `pause`, `proxy`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod audit;
mod body;
mod byte_set;
mod clock;
mod engine;
mod failure;
pub mod fuzzing;
mod message;
mod moment;
mod number;
mod operator;
mod parse;
mod places;
mod recommended;
mod rule;
mod screen;
mod set;
mod source;
mod store;
mod template;
mod transform;
mod variable;

pub use clock::{ElapsedWork, SystemClock, WallClock, WorkClock};
pub use engine::{Budget, Connection, EXHAUSTED_STATUS, NAMES_MAX, Services, Transaction, Verdict, prepare_patterns};
pub use failure::{Place, RuleError, RuleWarning};
pub use message::RuleMatch;
pub use operator::{MATCH_STEPS_MAX, evaluate_operator};
pub use places::GeoDatabase;
pub use recommended::RECOMMENDED_SETTINGS;
pub use rule::{AuditState, BodyProcessor, EngineState};
pub use set::{
    AuditFile, AuditFormat, AuditType, ExhaustedAction, GeoFile, LimitAction, LookupUse, RuleSet, RuleSummary, Settings,
};
pub use source::{NoFiles, RuleFiles, RuleText};
pub use store::{COLLECTION_TIMEOUT, CollectionStore, LastingCollection, MemoryStore, STORE_BYTES_MAX, StoreChange};
pub use transform::{Transformation, UnicodeMap};
pub use variable::Variable;
