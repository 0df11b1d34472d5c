//! Login at a POP3 server (nginx: `ngx_mail_proxy_pop3_handler`).

use crate::protocol::{LoginFacts, LoginStep, ServerLogin};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pop3LoginState {
    #[default]
    Greeting,
    User,
    Password,
}

#[derive(Default)]
pub struct Pop3Login(Pop3LoginState);

impl ServerLogin for Pop3Login {
    fn answer(&mut self, answer: &[u8], facts: &LoginFacts<'_>) -> LoginStep {
        if !answer.starts_with(b"+OK") {
            return LoginStep::Refused(0);
        }
        let line = |word: &[u8], value: &[u8]| [word, value, b"\r\n"].concat();
        match self.0 {
            Pop3LoginState::Greeting => {
                self.0 = Pop3LoginState::User;
                LoginStep::Line(line(b"USER ", &facts.login.user), "sending user name to upstream")
            }
            Pop3LoginState::User => {
                let Some(password) = &facts.login.password else { return LoginStep::NoPassword };
                self.0 = Pop3LoginState::Password;
                LoginStep::Line(line(b"PASS ", password), "sending password to upstream")
            }
            Pop3LoginState::Password => LoginStep::LoggedIn(None),
        }
    }
}
