//! SASL for the three protocols (RFC 4422; nginx: `ngx_mail_auth_parse`): PLAIN, LOGIN, CRAM-MD5 and EXTERNAL.

use crate::login::{LoginMethod, MailLogin, fits_command};
use crate::protocol::{DialogueContext, Starttls};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

conf_schema::word_set! {
    pub struct ImapMethods { PLAIN = 1 "plain", LOGIN = 2 "login", CRAM_MD5 = 4 "cram-md5", EXTERNAL = 8 "external" }
}
conf_schema::word_set! {
    pub struct Pop3Methods { PLAIN = 1 "plain", APOP = 32 "apop", CRAM_MD5 = 4 "cram-md5", EXTERNAL = 8 "external" }
}
conf_schema::word_set! {
    pub struct SmtpMethods {
        PLAIN = 1 "plain", LOGIN = 2 "login", CRAM_MD5 = 4 "cram-md5", EXTERNAL = 8 "external", NONE = 16 "none",
    }
}

/// Methods of any protocol; the bits of the sets above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Methods(pub u32);

impl Methods {
    const PLAIN: u32 = 1;
    const LOGIN: u32 = 2;
    const CRAM_MD5: u32 = 4;
    const EXTERNAL: u32 = 8;
    const NONE: u32 = 16;
    const APOP: u32 = 32;

    pub fn external(self) -> bool {
        self.0 & Self::EXTERNAL != 0
    }
    pub fn cram_md5(self) -> bool {
        self.0 & Self::CRAM_MD5 != 0
    }
    pub fn apop(self) -> bool {
        self.0 & Self::APOP != 0
    }
    pub fn none(self) -> bool {
        self.0 & Self::NONE != 0
    }
    pub fn needs_salt(self) -> bool {
        self.cram_md5() || self.apop()
    }
    /// Names in SASL, in the order of capabilities.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (Self::PLAIN, "PLAIN"),
            (Self::LOGIN, "LOGIN"),
            (Self::CRAM_MD5, "CRAM-MD5"),
            (Self::EXTERNAL, "EXTERNAL"),
        ];
        all.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
    /// `pop3_auth plain` allows AUTH LOGIN, too.
    pub fn with_login_of_plain(self) -> Methods {
        if self.0 & Self::PLAIN != 0 { Methods(self.0 | Self::LOGIN) } else { self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingStep {
    Plain,
    LoginUser,
    LoginPassword,
    CramMd5,
    External,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslProgress {
    /// Challenge text in base64.
    Ask(String, WaitingStep),
    Done,
}

const USERNAME: &str = "VXNlcm5hbWU6";
const PASSWORD: &str = "UGFzc3dvcmQ6";

/// Starts an exchange with the words of an AUTH command. `None`: an invalid command.
pub fn begin_exchange(words: &[&[u8]], methods: Methods, talk: &mut DialogueContext<'_>) -> Option<SaslProgress> {
    if talk.starttls == Starttls::Only {
        return None;
    }
    let ask = |text: &str, waiting| Some(SaslProgress::Ask(text.into(), waiting));
    let (name, rest) = words.split_first()?;
    match (name.to_ascii_uppercase().as_slice(), rest) {
        (b"LOGIN", []) => ask(USERNAME, WaitingStep::LoginUser),
        (b"LOGIN", [user]) => answer_word(WaitingStep::LoginUser, user, talk),
        (b"PLAIN", []) => ask("", WaitingStep::Plain),
        (b"PLAIN", [all]) => answer_word(WaitingStep::Plain, all, talk),
        (b"CRAM-MD5", []) if methods.cram_md5() => ask(&encode_base64(&talk.login.salt), WaitingStep::CramMd5),
        (b"EXTERNAL", []) if methods.external() => ask(USERNAME, WaitingStep::External),
        // nginx accepts EXTERNAL's initial response even if the method is disabled; Tidegate does not.
        (b"EXTERNAL", [user]) if methods.external() => answer_word(WaitingStep::External, user, talk),
        _ => None,
    }
}

/// Continues with the client's response. `None`: an invalid command.
pub fn answer_word(waiting: WaitingStep, word: &[u8], talk: &mut DialogueContext<'_>) -> Option<SaslProgress> {
    let name = match waiting {
        WaitingStep::Plain => "PLAIN",
        WaitingStep::LoginUser | WaitingStep::LoginPassword => "LOGIN",
        WaitingStep::CramMd5 => "CRAM-MD5",
        WaitingStep::External => "EXTERNAL",
    };
    let Some(bytes) = decode(word) else {
        talk.notes.push(format!("client sent invalid base64 encoding in AUTH {name} command"));
        return None;
    };
    let invalid = |what: &str, talk: &mut DialogueContext<'_>| {
        talk.notes.push(format!("client sent invalid {what} in AUTH {name} command"));
        None
    };
    match waiting {
        WaitingStep::Plain => {
            // Ignores the authorization identity.
            let after = memchr::memchr(0, &bytes).and_then(|at| bytes.get(at + 1..));
            let Some(rest) = after.filter(|rest| !rest.is_empty()) else { return invalid("login", talk) };
            let end = memchr::memchr(0, rest);
            let Some((user, password)) = end.and_then(|at| Some((rest.get(..at)?, rest.get(at + 1..)?))) else {
                return invalid("password", talk);
            };
            done(talk.login, LoginMethod::Plain, user, Some(password)).or_else(|| invalid("login", talk))
        }
        WaitingStep::LoginUser => {
            if !talk.login.set(LoginMethod::Plain, &bytes, None) {
                return invalid("login", talk);
            }
            Some(SaslProgress::Ask(PASSWORD.into(), WaitingStep::LoginPassword))
        }
        WaitingStep::LoginPassword => {
            let user = talk.login.user.clone();
            done(talk.login, LoginMethod::Plain, &user, Some(&bytes)).or_else(|| invalid("password", talk))
        }
        WaitingStep::CramMd5 => {
            // As in nginx, the name ends at the first space.
            let space = memchr::memchr(b' ', &bytes);
            let parts = space.and_then(|at| Some((bytes.get(..at)?, bytes.get(at + 1..)?)));
            match parts.filter(|(_, digest)| digest.len() == 32) {
                Some((user, digest)) => {
                    done(talk.login, LoginMethod::CramMd5, user, Some(digest)).or_else(|| invalid("login", talk))
                }
                None => {
                    // The message names the login.
                    let user = bytes.split(|c| *c == b' ').next().unwrap_or_default();
                    if fits_command(user) {
                        talk.login.user = user.to_vec();
                    }
                    invalid("CRAM-MD5 hash", talk)
                }
            }
        }
        WaitingStep::External => {
            done(talk.login, LoginMethod::External, &bytes, None).or_else(|| invalid("login", talk))
        }
    }
}

fn done(login: &mut MailLogin, method: LoginMethod, user: &[u8], password: Option<&[u8]>) -> Option<SaslProgress> {
    login.set(method, user, password).then_some(SaslProgress::Done)
}

/// As in nginx: padding is optional, and ends the input.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

fn decode(word: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'=', word).unwrap_or(word.len());
    LENIENT.decode(word.get(..end)?).ok()
}

pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::dialogue_context;

    const ALL: Methods = Methods(63);

    fn run(words: &[&str], answers: &[&str]) -> (Option<SaslProgress>, MailLogin, Vec<String>) {
        let (mut login, mut notes) = (MailLogin { salt: b"<1.2@h>".to_vec(), ..MailLogin::default() }, Vec::new());
        let mut talk = dialogue_context(&mut login, Starttls::Off, &mut notes);
        let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
        let mut progress = begin_exchange(&words, ALL, &mut talk);
        for word in answers {
            let Some(SaslProgress::Ask(_, waiting)) = progress else { break };
            progress = answer_word(waiting, word.as_bytes(), &mut talk);
        }
        (progress, login, notes)
    }

    #[test]
    fn every_method() {
        let plain = encode_base64(b"\0user\0secret");
        for (words, answers) in [
            (vec!["plain"], vec![plain.as_str()]),
            (vec!["PLAIN", plain.as_str()], vec![]),
            (vec!["LOGIN"], vec!["dXNlcg==", "c2VjcmV0"]),
            (vec!["LOGIN", "dXNlcg"], vec!["c2VjcmV0"]),
        ] {
            let (progress, login, _) = run(&words, &answers);
            assert_eq!(progress, Some(SaslProgress::Done), "{words:?}");
            assert_eq!((login.user.as_slice(), login.password.as_deref()), (&b"user"[..], Some(&b"secret"[..])));
            assert_eq!(login.method, LoginMethod::Plain);
        }
        let digest = encode_base64(format!("user {}", "0".repeat(32)).as_bytes());
        let (progress, login, _) = run(&["CRAM-MD5"], &[&digest]);
        assert_eq!((progress, login.method), (Some(SaslProgress::Done), LoginMethod::CramMd5));
        assert_eq!(login.password.map(|p| p.len()), Some(32));
        let (progress, login, _) = run(&["EXTERNAL"], &["dXNlcg=="]);
        assert_eq!(
            (progress, login.method, login.user),
            (Some(SaslProgress::Done), LoginMethod::External, b"user".to_vec())
        );
        let (progress, ..) = run(&["CRAM-MD5"], &[]);
        assert_eq!(progress, Some(SaslProgress::Ask(encode_base64(b"<1.2@h>"), WaitingStep::CramMd5)));
    }

    #[test]
    fn malformed_exchanges_are_answered() {
        for (words, answers, note) in [
            (vec!["PLAIN", "*"], vec![], "client sent invalid base64 encoding in AUTH PLAIN command"),
            (vec!["PLAIN", "dXNlcg=="], vec![], "client sent invalid login in AUTH PLAIN command"),
            (vec!["PLAIN", "AHVzZXI="], vec![], "client sent invalid password in AUTH PLAIN command"),
            (vec!["PLAIN", "AA=="], vec![], "client sent invalid login in AUTH PLAIN command"),
            (vec!["CRAM-MD5"], vec!["dXNlcg=="], "client sent invalid CRAM-MD5 hash in AUTH CRAM-MD5 command"),
            (vec!["LOGIN"], vec!["!"], "client sent invalid base64 encoding in AUTH LOGIN command"),
        ] {
            let (progress, _, notes) = run(&words, &answers);
            assert_eq!((progress, notes.as_slice()), (None, &[note.to_string()][..]), "{words:?}");
        }
        for words in [vec!["GSSAPI"], vec!["LOGIN", "a", "b"], vec!["CRAM-MD5", "a"], vec![]] {
            assert_eq!(run(&words, &[]).0, None, "{words:?}");
        }
    }

    /// The session's log line names the login.
    #[test]
    fn an_invalid_digest_leaves_the_login() {
        let (progress, login, _) = run(&["CRAM-MD5"], &[&encode_base64(b"user short")]);
        assert_eq!((progress, login.user.as_slice()), (None, &b"user"[..]));
    }

    /// Names and passwords become parts of command lines.
    #[test]
    fn nothing_that_could_end_a_line_gets_through() {
        for bytes in [&b"\0a\r\nDELE 1\0p"[..], b"\0a\0p\nq", b"\0a\0p\0q", b"\0a\rb\0p"] {
            let (progress, login, _) = run(&["PLAIN", &encode_base64(bytes)], &[]);
            assert_eq!((progress, login.password), (None, None), "{bytes:?}");
        }
        assert_eq!(run(&["LOGIN", &encode_base64(b"a\nb")], &[]).0, None);
        assert_eq!(run(&["EXTERNAL"], &[&encode_base64(b"a\0b")]).0, None);
        let digest = encode_base64(format!("u\r\n {}", "0".repeat(32)).as_bytes());
        assert_eq!(run(&["CRAM-MD5"], &[&digest]).0, None);
    }

    #[test]
    fn methods_that_are_not_allowed() {
        let (mut login, mut notes) = (MailLogin::default(), Vec::new());
        let mut talk = dialogue_context(&mut login, Starttls::Off, &mut notes);
        for words in [&[&b"CRAM-MD5"[..]][..], &[b"EXTERNAL"], &[b"EXTERNAL", b"dXNlcg=="]] {
            assert_eq!(begin_exchange(words, Methods(3), &mut talk), None);
        }
        talk.starttls = Starttls::Only;
        assert_eq!(begin_exchange(&[b"PLAIN"], ALL, &mut talk), None);
        assert_eq!(Methods(63).names().collect::<Vec<_>>(), ["PLAIN", "LOGIN", "CRAM-MD5", "EXTERNAL"]);
    }
}
