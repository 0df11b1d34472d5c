//! Login at an IMAP server (nginx: `ngx_mail_proxy_imap_handler`). LOGIN with literals: names and passwords cannot be
//! misread.

use crate::protocol::{LoginFacts, LoginStep, ServerLogin};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImapLoginState {
    Greeting,
    Login,
    User,
    Password,
}

pub struct ImapLogin {
    state: ImapLoginState,
    /// The client's tag with the following space: the server's reply goes to the client.
    tag: Vec<u8>,
}

impl ImapLogin {
    pub fn new(tag: Vec<u8>) -> ImapLogin {
        ImapLogin { state: ImapLoginState::Greeting, tag }
    }
}

/// Returns the start of the first tagged line: capabilities may precede it.
fn tagged(answer: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = answer.get(at..).filter(|rest| !rest.is_empty())?;
        if !rest.starts_with(b"* ") {
            return Some(at);
        }
        at += memchr::memchr(b'\n', rest)? + 1;
    }
}

impl ServerLogin for ImapLogin {
    fn is_whole(&self, answer: &[u8]) -> bool {
        self.state != ImapLoginState::Password || tagged(answer).is_some()
    }
    fn answer(&mut self, answer: &[u8], facts: &LoginFacts<'_>) -> LoginStep {
        let (user, password) = (&facts.login.user, &facts.login.password);
        match self.state {
            ImapLoginState::Greeting if answer.starts_with(b"* OK") => {
                self.state = ImapLoginState::Login;
                let line = [&self.tag, format!("LOGIN {{{}}}\r\n", user.len()).as_bytes()].concat();
                LoginStep::Line(line, "sending LOGIN command to upstream")
            }
            ImapLoginState::Login if answer.starts_with(b"+") => {
                let Some(password) = password else { return LoginStep::NoPassword };
                self.state = ImapLoginState::User;
                let line = [user, format!(" {{{}}}\r\n", password.len()).as_bytes()].concat();
                LoginStep::Line(line, "sending user name to upstream")
            }
            ImapLoginState::User if answer.starts_with(b"+") => {
                let Some(password) = password else { return LoginStep::NoPassword };
                self.state = ImapLoginState::Password;
                LoginStep::Line([password, &b"\r\n"[..]].concat(), "sending password to upstream")
            }
            ImapLoginState::Password => {
                let at = tagged(answer).unwrap_or(0);
                match answer.get(at..).and_then(|line| line.strip_prefix(self.tag.as_slice())) {
                    Some(rest) if rest.starts_with(b"OK") => LoginStep::LoggedIn(None),
                    Some(_) => LoginStep::Refused(at + self.tag.len()),
                    None => LoginStep::Refused(at),
                }
            }
            _ => LoginStep::Refused(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error log quotes the answer behind the tag, as in nginx.
    #[test]
    fn a_refusal_is_quoted_without_its_tag() {
        let login = crate::login::MailLogin::default();
        let facts =
            LoginFacts { login: &login, server_name: "us", client: None, host: "", xclient: false, smtp_auth: false };
        for (answer, at) in [(&b"a1 NO bad\r\n"[..], 3), (b"* CAPABILITY X\r\na1 NO bad\r\n", 19), (b"a2 OK\r\n", 0)] {
            let mut talk = ImapLogin::new(b"a1 ".to_vec());
            talk.state = ImapLoginState::Password;
            assert_eq!(talk.answer(answer, &facts), LoginStep::Refused(at), "{answer:?}");
        }
    }

    #[test]
    fn capabilities_may_go_before_the_answer() {
        let mut login = ImapLogin::new(b"a1 ".to_vec());
        login.state = ImapLoginState::Password;
        assert!(!login.is_whole(b"* CAPABILITY IMAP4\r\n") && !login.is_whole(b"* a\r\n* b\r\n"));
        assert!(login.is_whole(b"* CAPABILITY IMAP4\r\na1 OK\r\n"));
        assert_eq!(tagged(b"* a\r\n* b\r\na1 OK\r\n"), Some(10));
    }
}
