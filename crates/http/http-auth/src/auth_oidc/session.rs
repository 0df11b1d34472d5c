//! Sessions of logged-in users, in a zone of key-value pairs. The cookie holds a random value, the zone its digest: the zone's list
//! and its state file are of no use as cookies.

use super::discovery::ProviderFailure;
use super::provider::Provider;
use super::state;
use super::tokens::{ProviderClient, Tokens};
use area::keyval::Keyval;
use http_engine::Request;
use http_engine::variables::find_cookie;
use jose::UnverifiedToken;
use keyval::{KeyvalPair, KeyvalZone, PairChange, Refusal};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Seconds before the end of an access token in which it is refreshed: at most, and as a part of its lifetime.
const AHEAD_MAX: u64 = 60;
const AHEAD_PART: u64 = 5;
/// Seconds for which a session continues with its old tokens after the provider failed to refresh them.
const RETRY_SECONDS: u64 = 30;
/// Sessions of one user: a further login ends the oldest, so that no user fills the store.
const SESSIONS_OF_USER_MAX: usize = 64;
/// Sessions of one `sid` that a front-channel logout ends: the latest ones.
const SESSIONS_OF_SID_MAX: usize = 16;
/// Milliseconds for which a back-channel logout is remembered beyond `session_timeout`: a refresh under way may prolong a session.
pub(super) const LOGOUT_EXTRA_MILLIS: u64 = 120_000;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub id_token: String,
    pub subject: String,
    /// The provider's identifier of the session.
    pub sid: Option<String>,
    pub access_token: Option<String>,
    pub refresh_token: Option<String>,
    pub userinfo: Option<String>,
    /// Seconds since 1970: the access token is to be refreshed, and has ended; 0: never.
    pub refresh_at: u64,
    pub ends_at: u64,
    /// The time of the first ID token.
    pub began: Moment,
    /// Milliseconds since 1970: the end of the session.
    pub until: u64,
}

/// The time of a token: of its issue, in seconds since 1970 by the provider's clock, and of its arrival, in milliseconds by the clock of
/// this machine, which orders tokens of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub issued: u64,
    pub arrived: u64,
}

impl Moment {
    /// The time of a token that arrives now.
    pub fn now(issued: u64) -> Moment {
        Moment { issued, arrived: base::clock::unix_millis() }
    }
    pub(super) fn text(self) -> String {
        format!("{} {}", self.issued, self.arrived)
    }
    pub(super) fn parse(text: &str) -> Option<Moment> {
        let (issued, arrived) = text.split_once(' ')?;
        Some(Moment { issued: issued.parse().ok()?, arrived: arrived.parse().ok()? })
    }
}

/// Sessions that a provider ends in the back channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedSessions {
    Sid(String),
    Subject(String),
}

pub fn session_cookie(r: &Request, name: &str) -> Option<Vec<u8>> {
    let lines = r.headers().filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let found = lines.map(|(_, value)| value).find_map(|value| find_cookie(value, name.as_bytes()));
    found.filter(|value| !value.is_empty()).map(<[u8]>::to_vec)
}

fn member(claims: &Map<String, Value>, name: &str) -> Option<String> {
    claims.get(name).and_then(Value::as_str).map(String::from)
}

impl Session {
    /// Takes new tokens over; absent ones stay.
    pub fn renew(&mut self, tokens: Tokens, timeout: u64) {
        let now = base::clock::unix_millis();
        if let (Some(token), Some(claims)) = (tokens.id_token, tokens.claims) {
            self.id_token = token;
            self.subject = member(&claims, "sub").unwrap_or_default();
            self.sid = member(&claims, "sid").or(self.sid.take());
            if self.began == Moment::default() {
                self.began = Moment::now(claims.get("iat").and_then(Value::as_f64).map_or(0, |iat| iat as u64));
            }
        }
        self.access_token = tokens.access_token.or(self.access_token.take());
        self.refresh_token = tokens.refresh_token.or(self.refresh_token.take());
        (self.refresh_at, self.ends_at) = match tokens.expires_in {
            Some(lifetime) if self.refresh_token.is_some() => {
                let ends = (now / 1000).saturating_add(lifetime);
                (ends.saturating_sub((lifetime / AHEAD_PART).min(AHEAD_MAX)), ends)
            }
            _ => (0, 0),
        };
        self.until = now.saturating_add(timeout);
    }

    pub fn is_due(&self, now: u64) -> bool {
        self.refresh_at > 0 && now / 1000 >= self.refresh_at && self.refresh_token.is_some()
    }
    /// Tells whether the access token has ended.
    pub fn is_over(&self, now: u64) -> bool {
        self.ends_at > 0 && now / 1000 >= self.ends_at
    }

    pub(super) fn text(&self) -> String {
        json!({
            "id_token": self.id_token, "sub": self.subject, "sid": self.sid, "access_token": self.access_token,
            "refresh_token": self.refresh_token, "userinfo": self.userinfo, "refresh_at": self.refresh_at,
            "ends_at": self.ends_at, "began": self.began.text(), "until": self.until,
        })
        .to_string()
    }
    pub(super) fn parse(text: &str) -> Option<Session> {
        let Ok(Value::Object(members)) = serde_json::from_str(text) else { return None };
        let text = |name: &str| member(&members, name);
        let number = |name: &str| members.get(name).and_then(Value::as_u64);
        Some(Session {
            id_token: text("id_token")?,
            subject: text("sub")?,
            sid: text("sid"),
            access_token: text("access_token"),
            refresh_token: text("refresh_token"),
            userinfo: text("userinfo"),
            refresh_at: number("refresh_at")?,
            ends_at: number("ends_at")?,
            // Of a version that did not store it: before any logout.
            began: text("began").and_then(|text| Moment::parse(&text)).unwrap_or_default(),
            until: number("until")?,
        })
    }

    /// Returns the claims of the ID token.
    pub fn claims(&self) -> Option<Map<String, Value>> {
        UnverifiedToken::parse(self.id_token.as_bytes())?.claims
    }
}

/// Changes of the pairs that list the sessions of a `sid` or of a user.
static LISTS: Mutex<()> = Mutex::new(());

/// Returns the keys of a list, the oldest first.
fn keys_of(store: &KeyvalZone, list: &str, now: u64) -> Vec<String> {
    let split = |text: &str| text.split_ascii_whitespace().map(String::from).collect();
    store.find(list.as_bytes(), now, split).unwrap_or_default()
}

/// Adds a pair, or changes it.
pub(super) fn put(store: &Keyval, key: &str, value: &str, expires: u64, now: u64) -> Result<(), Refusal> {
    let put = |zone: &KeyvalZone| match zone.change(key, PairChange { value: Some(value), expires: Some(expires) }, now)
    {
        Err(Refusal::Missing) => zone.add(KeyvalPair::new(key, value, Some(expires)), now),
        changed => changed,
    };
    store.update_pair(key, now, put)
}

impl Provider {
    /// Returns the key of a cookie's session. Sessions of other providers have other keys, also in a shared zone.
    pub fn key_of(&self, cookie: &[u8]) -> String {
        state::state_digest(&[
            b"session",
            self.name.as_bytes(),
            self.issuer.as_bytes(),
            self.client_id.as_bytes(),
            cookie,
        ])
    }
    /// Returns the key of the time of a back-channel logout.
    fn logout_key(&self, ended: &EndedSessions) -> String {
        let (kind, value): (&[u8], _) = match ended {
            EndedSessions::Sid(sid) => (b"logout of sid", sid),
            EndedSessions::Subject(subject) => (b"logout of sub", subject),
        };
        state::state_digest(&[kind, self.name.as_bytes(), self.issuer.as_bytes(), value.as_bytes()])
    }
    /// Returns the key of the list of a user's sessions.
    fn user_key(&self, subject: &str) -> String {
        state::state_digest(&[b"sub", self.name.as_bytes(), self.issuer.as_bytes(), subject.as_bytes()])
    }
    fn list_key(&self, sid: &str) -> String {
        state::state_digest(&[b"sid", self.name.as_bytes(), self.issuer.as_bytes(), sid.as_bytes()])
    }

    pub fn find(&self, key: &str) -> Option<Session> {
        let now = base::clock::unix_millis();
        let session = self.store()?.zone.find(key.as_bytes(), now, |text| self.read_session(key, text))??;
        if self.has_ended(key, &session, now) {
            self.end(key);
            return None;
        }
        (now < session.until).then_some(session)
    }
    /// Tells whether the provider has ended a session in the back channel, or any server has.
    fn has_ended(&self, key: &str, session: &Session, now: u64) -> bool {
        if self.has_ended_elsewhere(key, session, now) {
            return true;
        }
        let (Some(store), Some(_)) = (self.store(), &self.backchannel_path) else { return false };
        let ended = |ended: &EndedSessions| {
            let key = self.logout_key(ended);
            store.zone.find(key.as_bytes(), now, Moment::parse).flatten().is_some_and(|at| session.began <= at)
        };
        session.sid.as_ref().is_some_and(|sid| ended(&EndedSessions::Sid(sid.clone())))
            || ended(&EndedSessions::Subject(session.subject.clone()))
    }
    /// Finds the request's session, and its key.
    pub fn session_of(&self, r: &Request) -> Option<(String, Session)> {
        let key = self.key_of(&session_cookie(r, &self.cookie_name)?);
        let session = self.find(&key)?;
        Some((key, session))
    }

    /// Stores a new session. Returns the value of its cookie.
    ///
    /// # Errors
    /// The store is full, or the session too large for it.
    pub fn begin(&self, session: &Session) -> Result<String, Refusal> {
        let store = self.store().ok_or(Refusal::Missing)?;
        let cookie = state::random_text::<32>();
        let (key, now) = (self.key_of(cookie.as_bytes()), base::clock::unix_millis());
        let _turn = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        let list = self.user_key(&session.subject);
        let zone = &store.zone;
        let mut of_user = keys_of(zone, &list, now);
        of_user.retain(|key| zone.find(key.as_bytes(), now, |_| ()).is_some());
        for oldest in of_user.drain(..(of_user.len() + 1).saturating_sub(SESSIONS_OF_USER_MAX)) {
            self.end(&oldest);
        }
        of_user.push(key.clone());
        let text = self.session_text(&key, session)?;
        store.update_pair(&key, now, |zone| zone.add(KeyvalPair::new(&key, &text, Some(session.until)), now))?;
        let listed = put(store, &list, &of_user.join(" "), session.until, now).and_then(|()| match &session.sid {
            Some(sid) if self.lists_sessions() => {
                let list = self.list_key(sid);
                let mut of_sid = keys_of(zone, &list, now);
                of_sid.push(key.clone());
                let latest = of_sid.get(of_sid.len().saturating_sub(SESSIONS_OF_SID_MAX)..).unwrap_or_default();
                put(store, &list, &latest.join(" "), session.until, now)
            }
            _ => Ok(()),
        });
        if listed.is_err() {
            self.end(&key);
        }
        listed?;
        Ok(cookie)
    }
    /// Replaces a session, unless it has ended meanwhile.
    fn replace(&self, key: &str, session: &Session) -> Result<(), Refusal> {
        let Some(store) = self.store() else { return Ok(()) };
        let now = base::clock::unix_millis();
        let prolong = |list: &str| {
            let change = PairChange { value: None, expires: Some(session.until) };
            let _ = store.update_pair(list, now, |zone| zone.change(list, change, now));
        };
        prolong(&self.user_key(&session.subject));
        if let (Some(sid), true) = (&session.sid, self.lists_sessions()) {
            prolong(&self.list_key(sid));
        }
        let text = self.session_text(key, session)?;
        let change = PairChange { value: Some(&text), expires: Some(session.until) };
        match store.update_pair(key, now, |zone| zone.change(key, change, now)) {
            Err(Refusal::Missing) => Ok(()),
            done => done,
        }
    }
    fn lists_sessions(&self) -> bool {
        self.frontchannel_path.is_some() || self.backchannel_path.is_some()
    }
    /// Ends sessions that began before a logout token. Those that no list has leave the store when they are used next.
    ///
    /// # Errors
    /// The store is full.
    pub fn end_by_provider(&self, ended: &EndedSessions, at: Moment) -> Result<(), Refusal> {
        let store = self.store().ok_or(Refusal::Missing)?;
        let (key, now) = (self.logout_key(ended), base::clock::unix_millis());
        let expires = now.saturating_add(self.session_timeout).saturating_add(LOGOUT_EXTRA_MILLIS);
        {
            let _turn = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
            // A token that is repeated has no effect on later logins, and does not undo a later one.
            let known = store.zone.find(key.as_bytes(), now, Moment::parse).flatten();
            let text = known.filter(|known| known.issued >= at.issued).unwrap_or(at).text();
            put(store, &key, &text, expires, now)?;
        }
        if let EndedSessions::Sid(sid) = ended {
            self.end_all_of(sid);
        }
        Ok(())
    }
    /// Ends a session.
    pub fn end(&self, key: &str) {
        let (Some(store), now) = (self.store(), base::clock::unix_millis()) else { return };
        let _ = store.update_pair(key, now, |zone| zone.remove(key, now));
        self.tell_end(key, now);
    }
    /// Ends all sessions of a `sid`.
    pub fn end_all_of(&self, sid: &str) {
        let Some(store) = self.store() else { return };
        let (list, now) = (self.list_key(sid), base::clock::unix_millis());
        let _turn = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = keys_of(&store.zone, &list, now);
        all.iter().for_each(|key| self.end(key));
        let _ = store.update_pair(&list, now, |zone| zone.remove(&list, now));
        if !all.is_empty() {
            self.tell_end_of(sid, now);
        }
    }

    /// Refreshes a session. If the provider fails, the session continues for a while with its old tokens.
    ///
    /// # Errors
    /// See [`ProviderFailure`]; the session has ended unless it is [`ProviderFailure::Unavailable`].
    pub async fn refresh(
        self: &Arc<Self>,
        key: &str,
        mut session: Session,
        resolving: Option<resolver::ResolveRules>,
    ) -> Result<(), ProviderFailure> {
        let asked = async {
            let metadata = self.metadata(resolving.clone()).await?;
            let talk = ProviderClient::new(self, resolving, metadata);
            let token = session.refresh_token.clone().unwrap_or_default();
            let tokens = talk.refresh(&token, &session.subject).await?;
            let userinfo = match (&tokens.access_token, self.userinfo) {
                (Some(access), true) => Some(talk.userinfo(access, &session.subject).await?),
                _ => None,
            };
            Ok((tokens, userinfo))
        };
        let asked = asked.await;
        base::clock::update();
        match asked {
            Ok((tokens, userinfo)) => {
                session.renew(tokens, self.session_timeout);
                session.userinfo = userinfo.or(session.userinfo.take());
            }
            Err(ProviderFailure::Unavailable(why)) => {
                let later = base::clock::unix_millis() / 1000 + RETRY_SECONDS;
                (session.refresh_at, session.ends_at) = (later, session.ends_at.max(later));
                let _ = self.replace(key, &session);
                return Err(ProviderFailure::Unavailable(why));
            }
            Err(why) => {
                // Another server has been faster: its refresh token replaces the one of this request.
                if self.find(key).is_some_and(|other| other.refresh_token != session.refresh_token) {
                    return Ok(());
                }
                self.end(key);
                return Err(why);
            }
        }
        self.replace(key, &session).map_err(|refusal| {
            // The provider may have replaced the refresh token: the old session is of no use any more.
            self.end(key);
            ProviderFailure::Unavailable(format!("the session is not stored: {refusal}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(expires_in: Option<u64>, refresh: Option<&str>) -> Tokens {
        Tokens {
            id_token: Some("a.b.c".into()),
            claims: json!({"sub": "u", "sid": "s", "iat": 1000}).as_object().cloned(),
            access_token: Some("access".into()),
            refresh_token: refresh.map(String::from),
            expires_in,
        }
    }

    #[test]
    fn sessions_survive_their_text() {
        let mut session = Session::default();
        session.renew(tokens(Some(3600), Some("r")), 1000);
        session.userinfo = Some("{}".into());
        assert_eq!((Session::parse(&session.text()), session.began.issued), (Some(session.clone()), 1000));
        // The session begins with its first ID token.
        let mut later = tokens(None, None);
        later.claims = json!({"sub": "u", "iat": 2000}).as_object().cloned();
        session.renew(later, 1000);
        assert_eq!(session.began.issued, 1000);
        assert!(session.began.arrived > 0 && Moment::parse(&session.began.text()) == Some(session.began));
        assert!([" ", "1", "1 x", "1 2 3"].iter().all(|text| Moment::parse(text).is_none()));
        for text in ["", "[]", "{}", r#"{"id_token":"a","sub":"b","until":1}"#] {
            assert_eq!(Session::parse(text), None, "{text}");
        }
    }

    #[test]
    fn tokens_are_refreshed_before_their_end() {
        let now = base::clock::unix_millis();
        let mut session = Session::default();
        session.renew(tokens(Some(3600), Some("r")), 8000);
        assert!(!session.is_due(now) && !session.is_over(now) && session.until >= now + 8000);
        assert!(session.is_due(now + 3_545_000) && !session.is_over(now + 3_545_000));
        assert!(session.is_over(now + 3_605_000));
        // A response without a refresh token or a lifetime keeps the old one; without any, nothing is refreshed.
        session.renew(tokens(Some(10), None), 8000);
        assert_eq!(session.refresh_token.as_deref(), Some("r"));
        assert!(session.is_due(now + 9_000) && !session.is_due(now + 6_000));
        session.renew(tokens(None, None), 8000);
        assert!(!session.is_due(u64::MAX) && !session.is_over(u64::MAX));
    }
}
