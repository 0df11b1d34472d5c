//! Access: rules by address and variable, and names with passwords (Apache: `ap_process_request_internal`, mod_auth_basic,
//! mod_authn_file, mod_authz_groupfile).

use super::request::{RequestValues, find_variable};
use super::{ApplyHtaccess, HtaccessState};
use htaccess::Settings;
use htaccess::access::{AccessClient, Authorization};
use http_engine::failed_logins::{self, LoginAttempt};
use http_engine::path::bytes_path;
use http_engine::variables::basic_credentials;
use http_engine::{Flow, Request};
use observe::{Severity, os_error};
use passwords::{PASSWORDS_WAITING_MAX, PasswordVerdict};

/// User whose password was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLogin {
    pub user: String,
    /// File that holds the password, as its directive names it.
    file: String,
}

impl RuleLogin {
    /// Tells whether settings ask for the same file.
    pub fn is_for(&self, settings: &Settings) -> bool {
        settings.auth.user_file.as_deref() == Some(&self.file)
    }
}

/// Result of the access rules.
pub enum Judgment {
    Granted,
    /// 403, or 401 for a user without the rights.
    Refused(u16),
    /// A name and a password are needed.
    NeedsLogin,
    /// The rules cannot be evaluated; for the log.
    Wrong(String),
}

impl ApplyHtaccess {
    /// Judges the client of a request. `login`: the user whose password was right.
    pub(super) fn judge(
        &self,
        settings: &Settings,
        values: &RequestValues,
        login: Option<&RuleLogin>,
        r: &Request,
    ) -> Judgment {
        if settings.tls_required && r.connection().tls.is_none() {
            return Judgment::Refused(403);
        }
        let env =
            |name: &str| find_variable(&values.env, name).map(|value| String::from_utf8_lossy(&value).into_owned());
        let groups = || self.groups(settings, login, r);
        let client = AccessClient {
            address: values.peer,
            server: values.local,
            method: &values.method,
            env: &env,
            user: login.map(|login| login.user.as_str()),
            groups: &groups,
        };
        let ordered = settings.ordered.as_ref();
        let any = ordered.is_some_and(|ordered| ordered.satisfies_any(&values.method));
        match (any, ordered.is_none_or(|ordered| ordered.allows(&client))) {
            (true, true) => return Judgment::Granted,
            (false, false) => return Judgment::Refused(403),
            _ => {}
        }
        let has_type = settings.auth.basic == Some(true);
        let Some(require) = &settings.require else {
            return match has_type {
                true => Judgment::Wrong("AuthType configured with no corresponding authorization directives".into()),
                false => Judgment::Granted,
            };
        };
        match require.authorize(&client) {
            Authorization::Granted => Judgment::Granted,
            Authorization::DeniedWithoutUser if !has_type => {
                Judgment::Wrong("a user is required without \"AuthType Basic\"".into())
            }
            Authorization::DeniedWithoutUser if settings.auth.realm.is_none() => {
                Judgment::Wrong("need AuthName".into())
            }
            Authorization::DeniedWithoutUser => Judgment::NeedsLogin,
            // As in Apache, another user may have the rights.
            Authorization::Denied | Authorization::Neutral if login.is_some() => Judgment::Refused(401),
            Authorization::Denied | Authorization::Neutral => Judgment::Refused(403),
        }
    }

    /// Groups of the user, by `AuthGroupFile`; none if the file cannot be read.
    fn groups(&self, settings: &Settings, login: Option<&RuleLogin>, r: &Request) -> Vec<String> {
        let (Some(login), Some(name)) = (login, &settings.auth.group_file) else { return Vec::new() };
        match std::fs::read(self.prefix.join(name)) {
            Ok(groups) => passwords::groups_of(&groups, login.user.as_bytes()),
            Err(e) => {
                r.log(Severity::Error, format_args!("open() \"{name}\" failed {}", os_error(&e)));
                Vec::new()
            }
        }
    }

    /// Checks the client's name and password, and applies the rules again for a user who is right. `auth_failure_limit`
    /// counts wrong ones.
    pub(super) fn log_in(&self, r: &mut Request, settings: &Settings) -> Result<Flow, String> {
        let Some((user, password)) = basic_credentials(r) else { return Ok(refuse_login(r, settings, 401)) };
        let Some(name) = settings.auth.user_file.clone() else {
            return Err("AuthUserFile not specified in the configuration".into());
        };
        let login = RuleLogin { user: String::from_utf8_lossy(&user).into_owned(), file: name };
        let own = ApplyHtaccess { has_files: self.has_files, rules: self.rules.clone(), prefix: self.prefix.clone() };
        let settings = settings.clone();
        Ok(failed_logins::judge_login(r, move |r, attempt| own.check(r, attempt, settings, login, &user, password)))
    }

    fn check(
        self,
        r: &mut Request,
        attempt: LoginAttempt,
        settings: Settings,
        login: RuleLogin,
        user: &[u8],
        password: Vec<u8>,
    ) -> Flow {
        let file = self.prefix.join(bytes_path(login.file.as_bytes()));
        let users = match std::fs::read(&file) {
            Ok(users) => users,
            Err(e) => {
                r.log(Severity::Error, format_args!("open() \"{}\" failed {}", file.display(), os_error(&e)));
                return Flow::Status(500);
            }
        };
        let Some(stored) = passwords::find_hash(&users, user).map(<[u8]>::to_vec) else {
            r.log(Severity::Error, format_args!("user \"{}\" was not found in \"{}\"", login.user, file.display()));
            attempt.fail_for_good();
            return refuse_login(r, &settings, 401);
        };
        if !passwords::is_slow(&stored) {
            let verdict = passwords::check_password(&password, &stored);
            return self.judged(r, attempt, &settings, login, verdict);
        }
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = match passwords::check_on_pool(password, stored).await {
                    Ok(verdict) => self.judged(&mut r, attempt, &settings, login, verdict),
                    Err(passwords::CheckError::Busy) => {
                        r.log(
                            Severity::Error,
                            format_args!("{PASSWORDS_WAITING_MAX} passwords wait to be checked already"),
                        );
                        Flow::Status(503)
                    }
                    Err(passwords::CheckError::NoPool) => {
                        r.log(Severity::Crit, format_args!("the thread pool checked no password"));
                        Flow::Status(500)
                    }
                };
                (r, flow)
            })
        }))
    }

    fn judged(
        &self,
        r: &mut Request,
        attempt: LoginAttempt,
        settings: &Settings,
        login: RuleLogin,
        verdict: PasswordVerdict,
    ) -> Flow {
        if verdict != PasswordVerdict::Right {
            r.log(Severity::Error, format_args!("user \"{}\": password mismatch", login.user));
            attempt.fail_for_good();
            return refuse_login(r, settings, 401);
        }
        drop(attempt);
        let mut state = r.take_ext::<HtaccessState>().map(|state| *state).unwrap_or_default();
        (state.continues, state.login) = (true, Some(login));
        r.keep(state);
        self.apply(r).unwrap_or_else(|words| {
            r.log(Severity::Error, format_args!("{words}"));
            Flow::Status(500)
        })
    }
}

/// Refuses a request; with 401, asks for another name.
pub fn refuse_login(r: &mut Request, settings: &Settings, status: u16) -> Flow {
    if status == 401 {
        let realm = settings.auth.realm.as_deref().unwrap_or_default().replace('\\', "\\\\").replace('"', "\\\"");
        let field = "WWW-Authenticate";
        r.out.remove(field.as_bytes());
        if let Some(value) =
            r.field_value("AuthName", field.as_bytes(), format!("Basic realm=\"{realm}\"").into_bytes())
        {
            r.out.add(field, value);
        }
    }
    Flow::Status(status)
}
