//! The check of a request: token, keys, verification, times, requirements.

use super::keys::{KeySource, NoKeys, has_left};
use super::variables::TokenState;
use super::verified;
use crate::shared::requirement::Requirement;
use http_engine::failed_logins::{self, LoginAttempt};
use http_engine::{Flow, Handler, HttpTemplate, Request};
use http_types::{Known, Method};
use jose::{ExpectedClaims, KeySet, SignedToken, TokenFailure, UnverifiedToken};
use observe::Severity;
use std::rc::Rc;
use std::sync::Arc;

/// The configuration of a block.
pub struct JwtRules {
    pub realm: HttpTemplate,
    /// `None`: the `Authorization` header.
    pub token: Option<HttpTemplate>,
    /// The token is `$oidc_id_token`.
    pub token_of_session: bool,
    pub expected: ExpectedClaims,
    /// Seconds.
    pub leeway: u64,
    /// Milliseconds.
    pub key_cache: u64,
    pub sources: Box<[KeySource]>,
    pub requirements: Box<[Arc<Requirement>]>,
}

impl JwtRules {
    /// Returns the request's token; `None` if it has none.
    pub fn token(&self, r: &mut Request) -> Option<Vec<u8>> {
        let token = match &self.token {
            Some(template) => template.eval(r),
            None => {
                let value = match r.target.method() {
                    Method::Connect => r.header(Known::ProxyAuthorization)?,
                    _ => r.header(Known::Authorization)?,
                };
                let (scheme, token) = value.split_at_checked(7)?;
                scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii().to_vec())?
            }
        };
        (!token.is_empty()).then_some(token)
    }

    /// Finds the keys that are at hand. `Ok(None)`: a subrequest is needed.
    fn keys_at_hand(&self, r: &mut Request) -> Result<Option<Vec<Arc<KeySet>>>, NoKeys> {
        let mut sets = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            match source {
                KeySource::File(file) => sets.push(file.keys(r, self.key_cache)?),
                KeySource::Request(request) => match request.kept(self.key_cache) {
                    Some(set) => sets.push(set),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(sets))
    }

    /// Finds all keys. `anew`: fetches kept keys again that are old.
    async fn all_keys(&self, r: &mut Request, anew: bool) -> Result<Vec<Arc<KeySet>>, NoKeys> {
        let mut sets = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            sets.push(match source {
                KeySource::File(file) => file.keys(r, self.key_cache)?,
                KeySource::Request(request) => match request.kept(self.key_cache) {
                    Some(set) if !anew || !request.may_fetch_again(self.key_cache) => set,
                    kept => request.fetch(r, self.key_cache, anew && kept.is_some()).await?,
                },
            });
        }
        Ok(sets)
    }

    /// Tells whether kept keys may be fetched again for a token whose key is unknown.
    fn may_fetch_again(&self) -> bool {
        self.sources.iter().any(|source| match source {
            KeySource::Request(request) => request.may_fetch_again(self.key_cache),
            KeySource::File(_) => false,
        })
    }

    /// Verifies a token, or finds it among verified ones, and judges its times.
    fn verify(&self, token: &[u8], sets: &[Arc<KeySet>]) -> Result<Arc<SignedToken>, TokenFailure> {
        let id = verified::verification_id(token, self.expected, sets);
        let known = verified::with_verified(|all| all.get(&id));
        let verified = match known {
            Some(known) => known,
            None => {
                let sets: Vec<&KeySet> = sets.iter().map(|set| &**set).collect();
                let new = Arc::new(SignedToken::verify(token, self.expected, &sets)?);
                self.check_times(&new)?;
                verified::with_verified(|all| all.add(id, &new, token.len()));
                return Ok(new);
            }
        };
        self.check_times(&verified).inspect_err(|failure| {
            if *failure == TokenFailure::Expired {
                verified::with_verified(|all| all.remove(&id));
            }
        })?;
        Ok(verified)
    }
    fn check_times(&self, token: &SignedToken) -> Result<(), TokenFailure> {
        token.times.check(base::clock::unix_millis() as f64 / 1000.0, self.leeway as f64)
    }

    /// [`JwtRules::verify`] for tokens that take milliseconds: on a thread of the pool.
    async fn verify_slowly(&self, token: Vec<u8>, sets: Vec<Arc<KeySet>>) -> Result<Arc<SignedToken>, TokenFailure> {
        let id = verified::verification_id(&token, self.expected, &sets);
        if !SignedToken::is_slow(&token, self.expected) || verified::with_verified(|all| all.get(&id)).is_some() {
            return self.verify(&token, &sets);
        }
        let (expected, length) = (self.expected, token.len());
        let job = move || {
            let sets: Vec<&KeySet> = sets.iter().map(|set| &**set).collect();
            SignedToken::verify(&token, expected, &sets)
        };
        let pool = net::pool::find_pool(net::pool::DEFAULT);
        let done = match pool.map(|pool| pool.run(job)) {
            Some(Ok(work)) => work.await.unwrap_or(Err(TokenFailure::Invalid)),
            _ => Err(TokenFailure::Malformed("no thread is free for the decryption")),
        };
        base::clock::update();
        let token = Arc::new(done?);
        self.check_times(&token)?;
        verified::with_verified(|all| all.add(id, &token, length));
        Ok(token)
    }

    /// Ends the check with its result.
    fn conclude(
        &self,
        r: &mut Request,
        attempt: LoginAttempt,
        realm: &[u8],
        result: Result<Arc<SignedToken>, TokenFailure>,
    ) -> Flow {
        let token = match result {
            Ok(token) => token,
            Err(failure) => {
                r.share(Rc::new(TokenState::Refused));
                r.log(Severity::Error, format_args!("JSON Web Token is refused: {failure}"));
                // A client learns from the answer that its token has ended.
                if !matches!(failure, TokenFailure::Expired | TokenFailure::NotYet) {
                    attempt.fail(r);
                }
                return refuse(r, realm, true);
            }
        };
        drop(attempt);
        r.share(Rc::new(TokenState::Verified(token)));
        for (index, requirement) in self.requirements.iter().enumerate() {
            if !requirement.holds(r) {
                let number = index + 1;
                r.log(Severity::Error, format_args!("requirement {number} of \"auth_jwt_require\" does not hold"));
                return match requirement.status {
                    401 => refuse(r, realm, true),
                    status => Flow::Status(status),
                };
            }
        }
        failed_logins::forgive_failure(r);
        Flow::Allowed
    }
}

/// The handler.
pub struct JwtCheck(pub Arc<JwtRules>);

impl Handler for JwtCheck {
    fn run(&self, r: &mut Request) -> Flow {
        let check = &self.0;
        let realm = check.realm.eval(r);
        if realm == b"off" {
            // nginx documents "auth_jwt off token=$oidc_id_token": the token was verified when its session began.
            if check.token_of_session
                && let Some(token) = check.token(r).and_then(|token| UnverifiedToken::parse(&token))
            {
                r.share(Rc::new(TokenState::Checking(token)));
            }
            return Flow::Declined;
        }
        let Some(token) = check.token(r) else {
            r.share(Rc::new(TokenState::Refused));
            r.log(Severity::Info, format_args!("no JSON Web Token was provided"));
            return refuse(r, &realm, false);
        };
        if check.sources.is_empty() {
            r.share(Rc::new(TokenState::Refused));
            r.log(
                Severity::Error,
                format_args!("\"auth_jwt\" has neither \"auth_jwt_key_file\" nor \"auth_jwt_key_request\""),
            );
            return Flow::Status(500);
        }
        // A check in an earlier location does not apply to this one.
        if r.shared::<TokenState>().is_some() {
            r.share(Rc::new(TokenState::Unread));
        }
        let check = check.clone();
        failed_logins::judge_login(r, move |r, attempt| judge(&check, r, attempt, realm, token))
    }
}

fn judge(check: &Arc<JwtRules>, r: &mut Request, attempt: LoginAttempt, realm: Vec<u8>, token: Vec<u8>) -> Flow {
    let sets = match check.keys_at_hand(r) {
        Ok(sets) => sets,
        Err(NoKeys) => return without_keys(r),
    };
    if let Some(sets) = &sets
        && !SignedToken::is_slow(&token, check.expected)
    {
        let result = check.verify(&token, sets);
        if !matches!(result, Err(TokenFailure::NoKey)) || !check.may_fetch_again() {
            return check.conclude(r, attempt, &realm, result);
        }
    }
    match UnverifiedToken::parse(&token) {
        Some(readable) => r.share(Rc::new(TokenState::Checking(readable))),
        None => r.share(Rc::new(TokenState::Refused)),
    }
    let check = check.clone();
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let result = later(&check, &mut r, token, sets).await;
            let flow = match result {
                Ok(result) => check.conclude(&mut r, attempt, &realm, result),
                Err(NoKeys) => without_keys(&mut r),
            };
            (r, flow)
        })
    }))
}

async fn later(
    check: &JwtRules,
    r: &mut Request,
    token: Vec<u8>,
    sets: Option<Vec<Arc<KeySet>>>,
) -> Result<Result<Arc<SignedToken>, TokenFailure>, NoKeys> {
    let sets = match sets {
        Some(sets) => sets,
        None => check.all_keys(r, false).await?,
    };
    let result = check.verify_slowly(token.clone(), sets).await;
    if matches!(result, Err(TokenFailure::NoKey)) {
        // The keys may have been replaced before their time, or just now for another request.
        if let Ok(sets) = check.all_keys(r, true).await {
            return Ok(check.verify_slowly(token, sets).await);
        }
    }
    Ok(result)
}

fn without_keys(r: &mut Request) -> Flow {
    r.share(Rc::new(TokenState::Refused));
    Flow::Status(if has_left(r) { 499 } else { 500 })
}

/// Refuses a request, with the challenge of RFC 6750. Challenges of other schemes stay.
fn refuse(r: &mut Request, realm: &[u8], invalid: bool) -> Flow {
    let (field, status) = match r.target.method() {
        Method::Connect => ("Proxy-Authenticate", 407),
        _ => ("WWW-Authenticate", 401),
    };
    let error: &[u8] = if invalid { b",error=\"invalid_token\"" } else { b"" };
    let value = [b"Bearer realm=\"".as_slice(), realm, b"\"", error].concat();
    if let Some(value) = r.field_value("auth_jwt", field.as_bytes(), value) {
        r.out.add(field, value);
    }
    Flow::Status(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints the cost of a token that was verified before, and of its verification, on this machine:
    /// `cargo test -p http-auth --lib cost_of_a_verified_token -- --ignored --nocapture`.
    #[test]
    #[ignore = "prints figures"]
    fn cost_of_a_verified_token() {
        let keys = include_bytes!("../../../../platform/jose/src/vectors.json");
        let all: serde_json::Value = serde_json::from_slice(keys).expect("JSON");
        let vector = all.as_array().into_iter().flatten().find(|v| v["source"] == "RFC 7515 A.2").expect("the vector");
        let set = Arc::new(KeySet::parse(vector["key"].to_string().as_bytes()).expect("a key"));
        let token = vector["token"].as_str().expect("a token").as_bytes();
        let check = JwtRules {
            realm: HttpTemplate::literal(b"r"),
            token: None,
            token_of_session: false,
            expected: ExpectedClaims::Signed,
            leeway: 1 << 40,
            key_cache: 0,
            sources: Box::default(),
            requirements: Box::default(),
        };
        let time = |rounds: u32, work: &dyn Fn()| {
            let started = std::time::Instant::now();
            (0..rounds).for_each(|_| work());
            started.elapsed() / rounds
        };
        let sets = [set];
        let cached = time(200_000, &|| assert!(check.verify(token, &sets).is_ok()));
        let whole = time(2_000, &|| assert!(SignedToken::verify(token, ExpectedClaims::Signed, &[&sets[0]]).is_ok()));
        eprintln!("RS256, {} bytes: {cached:?} from the cache, {whole:?} without", token.len());
    }
}
