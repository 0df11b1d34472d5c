//! Login at an SMTP server (nginx: `ngx_mail_proxy_smtp_handler`): HELO or EHLO, optional XCLIENT (Postfix) and the
//! client's HELO, then AUTH, or the client's MAIL and RCPT.

use crate::login::LoginMethod;
use crate::protocol::{LoginFacts, LoginStep, ServerLogin};
use crate::sasl::encode_base64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SmtpLoginState {
    #[default]
    Nothing,
    /// The proxy's own HELO or EHLO.
    Helo,
    Xclient,
    /// The client's HELO or EHLO.
    ClientHelo,
    Auth,
    From,
    To,
}

#[derive(Default)]
pub struct SmtpLogin(SmtpLoginState);

/// Tells whether a line is the last of a reply: its code is followed by a space (RFC 5321, 4.2.1).
fn is_last(line: &[u8]) -> bool {
    line.get(3) != Some(&b'-')
}

impl SmtpLogin {
    fn after_helo(&mut self, facts: &LoginFacts<'_>) -> LoginStep {
        let login = facts.login;
        if login.method == LoginMethod::None {
            self.0 = SmtpLoginState::From;
            return LoginStep::Line([&login.envelope.from, &b"\r\n"[..]].concat(), "sending MAIL FROM to upstream");
        }
        if !facts.smtp_auth {
            return LoginStep::LoggedIn(Some("235 2.0.0 OK\r\n"));
        }
        let Some(password) = &login.password else { return LoginStep::NoPassword };
        self.0 = SmtpLoginState::Auth;
        let all = [b"\0", login.user.as_slice(), b"\0", password].concat();
        LoginStep::Line(format!("AUTH PLAIN {}\r\n", encode_base64(&all)).into_bytes(), "sending AUTH to upstream")
    }
}

impl ServerLogin for SmtpLogin {
    fn is_whole(&self, answer: &[u8]) -> bool {
        let lines = answer.strip_suffix(b"\n").unwrap_or(answer);
        let last = lines.rsplit(|c| *c == b'\n').next().unwrap_or_default();
        is_last(last)
    }
    fn answer(&mut self, answer: &[u8], facts: &LoginFacts<'_>) -> LoginStep {
        let code = answer.get(..3).unwrap_or_default();
        let envelope = &facts.login.envelope;
        match (self.0, code) {
            (SmtpLoginState::Nothing, b"220") => {
                self.0 = SmtpLoginState::Helo;
                let word = if envelope.extended || facts.xclient { "EHLO" } else { "HELO" };
                LoginStep::Line(
                    format!("{word} {}\r\n", facts.server_name).into_bytes(),
                    "sending HELO/EHLO to upstream",
                )
            }
            (SmtpLoginState::Helo, b"250") if facts.xclient => {
                self.0 = SmtpLoginState::Xclient;
                LoginStep::Line(xclient(facts), "sending XCLIENT to upstream")
            }
            (SmtpLoginState::Xclient, b"220" | b"250") if !envelope.helo.is_empty() => {
                self.0 = SmtpLoginState::ClientHelo;
                let word: &[u8] = if envelope.extended { b"EHLO " } else { b"HELO " };
                LoginStep::Line([word, &envelope.helo, b"\r\n"].concat(), "sending client HELO/EHLO to upstream")
            }
            (SmtpLoginState::Helo, b"250")
            | (SmtpLoginState::Xclient, b"220" | b"250")
            | (SmtpLoginState::ClientHelo, b"250") => self.after_helo(facts),
            (SmtpLoginState::Auth, b"235") => LoginStep::LoggedIn(Some("235 2.0.0 OK\r\n")),
            (SmtpLoginState::From, b"250") => {
                self.0 = SmtpLoginState::To;
                LoginStep::Line([&envelope.to, &b"\r\n"[..]].concat(), "sending RCPT TO to upstream")
            }
            // The client handles rejected recipients itself.
            (SmtpLoginState::To, _) => LoginStep::LoggedIn(None),
            _ => LoginStep::Refused(0),
        }
    }
}

fn xclient(facts: &LoginFacts<'_>) -> Vec<u8> {
    let mut line = b"XCLIENT ADDR=".to_vec();
    match facts.client {
        Some(ip @ std::net::IpAddr::V6(_)) => line.extend_from_slice(format!("IPV6:{ip}").as_bytes()),
        Some(ip) => line.extend_from_slice(ip.to_string().as_bytes()),
        None => line.extend_from_slice(b"unix:"),
    }
    if !facts.login.user.is_empty() && !facts.smtp_auth {
        line.extend_from_slice(b" LOGIN=");
        xtext(&facts.login.user, &mut line);
    }
    line.extend_from_slice(format!(" NAME={}\r\n", facts.host).as_bytes());
    line
}

/// Escapes xtext: RFC 3461, 4 (nginx: `NGX_ESCAPE_MAIL_XTEXT`).
fn xtext(text: &[u8], out: &mut Vec<u8>) {
    for &c in text {
        if c.is_ascii_graphic() && c != b'+' && c != b'=' {
            out.push(c);
        } else {
            out.extend_from_slice(format!("+{c:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::MailLogin;

    fn facts(login: &MailLogin, xclient: bool, smtp_auth: bool) -> LoginFacts<'_> {
        let client = Some([127, 0, 0, 1].into());
        LoginFacts { login, server_name: "us", client, host: "[UNAVAILABLE]", xclient, smtp_auth }
    }

    fn lines(login: &MailLogin, xclient: bool, smtp_auth: bool, answers: &[&str]) -> Vec<String> {
        let mut talk = SmtpLogin::default();
        let mut said = Vec::new();
        for answer in answers {
            assert!(talk.is_whole(answer.as_bytes()));
            said.push(match talk.answer(answer.as_bytes(), &facts(login, xclient, smtp_auth)) {
                LoginStep::Line(line, _) => String::from_utf8(line).expect("text"),
                other => format!("{other:?}"),
            });
        }
        said
    }

    #[test]
    fn every_way_in() {
        let mut login = MailLogin::default();
        assert!(login.set(LoginMethod::Plain, b"a=b c@x", Some(b"secret")));
        let ok = ["220 hi\r\n", "250-a\r\n250 b\r\n", "250 ok\r\n", "250 ok\r\n"];
        assert_eq!(lines(&login, false, false, &ok[..2]), ["HELO us\r\n", "LoggedIn(Some(\"235 2.0.0 OK\\r\\n\"))"]);
        login.envelope.helo = b"me".to_vec();
        login.envelope.extended = true;
        let want = [
            "EHLO us\r\n",
            "XCLIENT ADDR=127.0.0.1 LOGIN=a+3Db+20c@x NAME=[UNAVAILABLE]\r\n",
            "EHLO me\r\n",
            "LoggedIn(Some(\"235 2.0.0 OK\\r\\n\"))",
        ];
        assert_eq!(lines(&login, true, false, &ok), want);
        let auth = "AUTH PLAIN AGE9YiBjQHgAc2VjcmV0\r\n";
        assert_eq!(lines(&login, false, true, &ok[..2]), ["EHLO us\r\n", auth]);
        let want = ["EHLO us\r\n", "XCLIENT ADDR=127.0.0.1 NAME=[UNAVAILABLE]\r\n", "EHLO me\r\n", auth];
        assert_eq!(lines(&login, true, true, &ok), want);
        login.method = LoginMethod::None;
        login.envelope.from = b"MAIL FROM:<a>".to_vec();
        login.envelope.to = b"RCPT TO:<b>".to_vec();
        let want = ["EHLO us\r\n", "MAIL FROM:<a>\r\n", "RCPT TO:<b>\r\n", "LoggedIn(None)"];
        assert_eq!(lines(&login, false, false, &["220\r\n", "250 \r\n", "250 \r\n", "550 no\r\n"]), want);
    }

    #[test]
    fn answers_that_were_not_hoped_for() {
        let login = MailLogin::default();
        for answers in [&["554 no\r\n"][..], &["220 \r\n", "500 no\r\n"], &["\r\n"], &["25"]] {
            let said = lines(&login, false, false, answers);
            assert_eq!(said.last().map(String::as_str), Some("Refused(0)"), "{answers:?}");
        }
        assert_eq!(lines(&login, false, true, &["220\r\n", "250 \r\n"]).last().map(String::as_str), Some("NoPassword"));
    }

    #[test]
    fn replies_of_several_lines() {
        let talk = SmtpLogin::default();
        assert!(!talk.is_whole(b"250-a\r\n250-b\r\n"));
        assert!(talk.is_whole(b"250-a\r\n250 b\r\n") && talk.is_whole(b"250\r\n"));
    }
}
