//! auth_basic (nginx: `ngx_http_auth_basic_module`): user names and passwords from a file.
//!
//! Cheap hashes are checked at once; bcrypt, SHA-crypt and similar ones, which are slow by design, on a pool thread.

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::failed_logins::{self, LoginAttempt};
use http_engine::path::bytes_path;
use http_engine::variables::basic_credentials;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request};
use http_types::Method;
use observe::{Severity, os_error};
use passwords::{CheckError, PASSWORDS_WAITING_MAX, PasswordVerdict};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

directives! {
    pub struct AuthConf from AuthInput {
        /// Requires a user name and password (RFC 7617) for this realm; `off` disables the check.
        auth_basic: HttpTemplate = "off",
        /// File with user names and password hashes.
        /// Differs: hashes of crypt(3) that begin with `$2x$`, `$3$`, `$7$`, `$gy$` or `$md5` match no password.
        auth_basic_user_file: HttpTemplate,
    }
}

/// The feature.
pub struct AuthBasic;

impl Feature for AuthBasic {
    fn table(&self) -> FeatureTable {
        AuthConf::table("auth_basic", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AuthConf>() else { return Ok(()) };
        if let Some(file) = &conf.auth_basic_user_file
            && conf.auth_basic.as_literal() != Some(b"off")
        {
            let prefix = block.cx.conf_prefix.clone();
            let ask = BasicCheck { realm: conf.auth_basic.clone(), file: file.clone(), prefix };
            block.handle(HandlerOrder::AuthBasic, Arc::new(ask));
        }
        Ok(())
    }
}

struct BasicCheck {
    realm: HttpTemplate,
    file: HttpTemplate,
    /// Where relative names start: the folder of the main configuration file.
    prefix: PathBuf,
}

impl Handler for BasicCheck {
    fn run(&self, r: &mut Request) -> Flow {
        let realm = self.realm.eval(r);
        if realm == b"off" {
            return Flow::Declined;
        }
        let Some((user, password)) = basic_credentials(r) else {
            r.log(Severity::Info, format_args!("no user/password was provided for basic authentication"));
            return refuse(r, &realm);
        };
        let file = self.prefix.join(bytes_path(&self.file.eval(r)));
        let users = match conf_syntax::read_regular(&file) {
            Ok(users) => users,
            Err(e) => {
                let missing = e.kind() == std::io::ErrorKind::NotFound;
                let (level, status) = if missing { (Severity::Error, 403) } else { (Severity::Crit, 500) };
                // A folder can be opened.
                let call = if e.kind() == std::io::ErrorKind::IsADirectory { "pread" } else { "open" };
                r.log(level, format_args!("{call}() \"{}\" failed {}", file.display(), os_error(&e)));
                return Flow::Status(status);
            }
        };
        let shown = file.display().to_string();
        failed_logins::judge_login(r, move |r, attempt| {
            judge(r, attempt, BasicLogin { users, user, password, realm }, &shown)
        })
    }
}

/// Credentials of a request, and the users whom they are compared with.
struct BasicLogin {
    users: Vec<u8>,
    user: Vec<u8>,
    password: Vec<u8>,
    realm: Vec<u8>,
}

fn judge(r: &mut Request, attempt: LoginAttempt, login: BasicLogin, file: &str) -> Flow {
    let BasicLogin { users, user, password, realm } = login;
    let Some(stored) = passwords::find_hash(&users, &user) else {
        let shown = String::from_utf8_lossy(&user);
        r.log(Severity::Error, format_args!("user \"{shown}\" was not found in \"{file}\""));
        attempt.fail(r);
        return refuse(r, &realm);
    };
    if !passwords::is_slow(stored) {
        let verdict = passwords::check_password(&password, stored);
        return answer(r, attempt, verdict, &user, &realm);
    }
    let stored = stored.to_vec();
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = match passwords::check_on_pool(password, stored).await {
                Ok(verdict) => answer(&mut r, attempt, verdict, &user, &realm),
                Err(CheckError::Busy) => {
                    r.log(
                        Severity::Error,
                        format_args!("{PASSWORDS_WAITING_MAX} passwords wait to be checked already"),
                    );
                    Flow::Status(503)
                }
                Err(CheckError::NoPool) => {
                    let shown = String::from_utf8_lossy(&user);
                    r.log(Severity::Crit, format_args!("user \"{shown}\": the thread pool checked no password"));
                    Flow::Status(500)
                }
            };
            (r, flow)
        })
    }))
}

fn answer(r: &mut Request, attempt: LoginAttempt, verdict: PasswordVerdict, user: &[u8], realm: &[u8]) -> Flow {
    match verdict {
        PasswordVerdict::Right => {
            drop(attempt);
            failed_logins::forgive_failure(r);
            Flow::Allowed
        }
        PasswordVerdict::Wrong => {
            let shown = String::from_utf8_lossy(user);
            r.log(Severity::Error, format_args!("user \"{shown}\": password mismatch"));
            attempt.fail(r);
            refuse(r, realm)
        }
        // As in nginx, `user:!` is a locked account, like any other form that crypt(3) does not know.
        PasswordVerdict::Unreadable => {
            let shown = String::from_utf8_lossy(user);
            r.log(Severity::Error, format_args!("user \"{shown}\": password mismatch, its stored form is unknown"));
            attempt.fail(r);
            refuse(r, realm)
        }
    }
}

fn refuse(r: &mut Request, realm: &[u8]) -> Flow {
    let (field, status) = match r.target.method() {
        Method::Connect => ("Proxy-Authenticate", 407),
        _ => ("WWW-Authenticate", 401),
    };
    r.out.remove(field.as_bytes());
    let value = [b"Basic realm=\"".as_slice(), realm, b"\""].concat();
    if let Some(value) = r.field_value("auth_basic", field.as_bytes(), value) {
        r.out.add(field, value);
    }
    Flow::Status(status)
}
