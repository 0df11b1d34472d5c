//! Dialogue with a POP3 client (nginx: `ngx_mail_pop3_parse_command`, `ngx_mail_pop3_auth_state`).

use super::Pop3Answers;
use super::server::Pop3Login;
use crate::line;
use crate::login::{LoginMethod, MailLogin};
use crate::protocol::{
    Dialogue, DialogueContext, DialogueStep, MailRefusal, MailReply, Next, NextStep, ServerLogin, Starttls,
};
use crate::sasl::{self, SaslProgress, WaitingStep};
use std::sync::Arc;

const OK: &str = "+OK\r\n";
const INVALID: &str = "-ERR invalid command\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pop3DialogueState {
    Start,
    User,
    Sasl(WaitingStep),
}

pub struct Pop3Dialogue {
    answers: Arc<Pop3Answers>,
    state: Pop3DialogueState,
}

impl Pop3Dialogue {
    pub fn new(answers: Arc<Pop3Answers>) -> Pop3Dialogue {
        Pop3Dialogue { answers, state: Pop3DialogueState::Start }
    }

    fn go_on(&mut self, progress: Option<SaslProgress>) -> Option<NextStep> {
        match progress? {
            SaslProgress::Done => Some(NextStep::Authenticate),
            SaslProgress::Ask(text, waiting) => {
                self.state = Pop3DialogueState::Sasl(waiting);
                Some(MailReply::go(format!("+ {text}\r\n")))
            }
        }
    }

    fn command(&mut self, word: &[u8], rest: &[u8], talk: &mut DialogueContext<'_>) -> Option<NextStep> {
        let is_start = self.state == Pop3DialogueState::Start;
        match word {
            b"QUIT" => return Some(MailReply::then(OK, Next::Quit)),
            b"NOOP" => return Some(MailReply::go(OK)),
            b"CAPA" => {
                let starttls = if is_start { talk.starttls } else { Starttls::Off };
                return Some(MailReply::go(self.answers.capabilities(starttls)));
            }
            _ => {}
        }
        let in_clear = talk.starttls == Starttls::Only;
        // Names and passwords may contain spaces; empty ones are invalid.
        match (word, is_start) {
            (b"USER", true) if !rest.is_empty() && !in_clear => {
                let taken = talk.login.set(LoginMethod::Plain, rest, None);
                self.state = Pop3DialogueState::User;
                taken.then(|| MailReply::go(OK))
            }
            (b"PASS", false) if !rest.is_empty() => {
                let user = std::mem::take(&mut talk.login.user);
                talk.login.set(LoginMethod::Plain, &user, Some(rest)).then_some(NextStep::Authenticate)
            }
            (b"APOP", true) if self.answers.methods.apop() && !in_clear => match line::split_words(rest, 2)?.as_slice()
            {
                [user, digest] => {
                    talk.login.set(LoginMethod::Apop, user, Some(digest)).then_some(NextStep::Authenticate)
                }
                _ => None,
            },
            (b"AUTH", true) if !in_clear => {
                let words = line::split_words(rest, ARGUMENTS_MAX)?;
                if words.is_empty() {
                    return Some(MailReply::go(self.answers.methods_list.as_str()));
                }
                let progress = sasl::begin_exchange(&words, self.answers.methods, talk);
                self.go_on(progress)
            }
            (b"STLS", true) if talk.starttls != Starttls::Off => Some(MailReply::then(OK, Next::StartTls)),
            _ => None,
        }
    }
}

fn is_known(word: &[u8]) -> bool {
    matches!(word, b"USER" | b"PASS" | b"APOP" | b"QUIT" | b"CAPA" | b"AUTH" | b"NOOP" | b"STLS")
}

/// Maximum number of a command's arguments.
const ARGUMENTS_MAX: usize = 3;

/// Tells whether a command does not have too many arguments. Those of USER and PASS contain spaces.
fn fits(word: &[u8], rest: &[u8]) -> bool {
    matches!(word, b"USER" | b"PASS") || line::split_words(rest, ARGUMENTS_MAX).is_some()
}

impl Dialogue for Pop3Dialogue {
    fn step(&mut self, input: &[u8], talk: &mut DialogueContext<'_>) -> DialogueStep {
        let Some(line) = line::first_line(input) else { return DialogueStep { consumed: 0, then: NextStep::More } };
        let mut invalid = false;
        let then = match self.state {
            Pop3DialogueState::Sasl(waiting) => {
                let words = line::split_words(line.text, ARGUMENTS_MAX);
                invalid = words.is_none();
                let word = words.map(|words| words.first().copied().unwrap_or_default());
                let progress = word.and_then(|word| sasl::answer_word(waiting, word, talk));
                self.go_on(progress)
            }
            Pop3DialogueState::Start | Pop3DialogueState::User => match line::split_command(line.text, 4) {
                Some((word, rest)) if is_known(&word) && fits(&word, rest) => self.command(&word, rest, talk),
                _ => {
                    invalid = true;
                    None
                }
            },
        };
        let then =
            then.unwrap_or_else(|| NextStep::Reply(MailReply { bytes: self.invalid(), next: Next::Go, invalid }));
        DialogueStep { consumed: line.length, then }
    }
    fn invalid(&mut self) -> Vec<u8> {
        self.state = Pop3DialogueState::Start;
        INVALID.into()
    }
    fn refused(&self, refusal: &MailRefusal) -> Vec<u8> {
        [b"-ERR ", refusal.message.as_slice(), b"\r\n"].concat()
    }
    fn restart(&mut self, _: &mut MailLogin, _: bool) {
        self.state = Pop3DialogueState::Start;
    }
    fn server_login(&self) -> Box<dyn ServerLogin> {
        Box::<Pop3Login>::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::pop3::pop3_dialogue;
    use crate::protocol::Starttls;
    use crate::sasl::Methods;
    use crate::testing::at_every_cut;

    fn talk(starttls: Starttls, input: &str) -> String {
        at_every_cut(&|| pop3_dialogue(Methods(63)), starttls, input.as_bytes())
    }

    #[test]
    fn commands_and_what_is_answered() {
        for (input, want) in [
            ("NOOP\r\nnoop\n", "+OK\r\n+OK\r\n"),
            ("USER a b \r\nPASS p q \r\n", "+OK\r\n<AUTH plain a b  p q >"),
            (
                "USER a\r\nNOOP\r\nCAPA\r\nPASS p\r\n",
                "+OK\r\n+OK\r\n+OK Capability list follows\r\nTOP\r\nuser\r\nSASL PLAIN LOGIN CRAM-MD5 EXTERNAL\r\n.\r\n<AUTH plain a p>",
            ),
            ("USER a\r\nUSER b\r\nPASS p\r\n", "+OK\r\n-ERR invalid command\r\n-ERR invalid command\r\n"),
            ("PASS p\r\n", "-ERR invalid command\r\n"),
            ("USER\r\n", "-ERR invalid command\r\n"),
            ("APOP a 0123\r\n", "<AUTH apop a 0123>"),
            ("APOP a\r\n", "-ERR invalid command\r\n"),
            ("AUTH\r\n", "+OK methods supported:\r\nPLAIN\r\nLOGIN\r\nCRAM-MD5\r\nEXTERNAL\r\n.\r\n"),
            ("AUTH PLAIN\r\nAGEAcA==\r\n", "+ \r\n<AUTH plain a p>"),
            ("AUTH PLAIN\r\n\r\nNOOP\r\n", "+ \r\n-ERR invalid command\r\n+OK\r\n"),
            ("AUTH CRAM-MD5\r\n*\r\n", "+ PDEuMkBob3N0Pg==\r\n-ERR invalid command\r\n"),
            ("RETR 1\r\nQUIT\r\nNOOP\r\n", "-ERR invalid command\r\n+OK\r\n<QUIT>"),
            ("STLS\r\n", "-ERR invalid command\r\n"),
            (
                "NOOP 1 2 3\r\nNOOP 1 2 3 4\r\nCAPA a b c d\r\n",
                "+OK\r\n-ERR invalid command\r\n-ERR invalid command\r\n",
            ),
            (
                " NOOP\r\nNO OP\r\nNO\0OP\r\nNOOP\rx\r\n",
                "-ERR invalid command\r\n-ERR invalid command\r\n-ERR invalid command\r\n-ERR invalid command\r\n",
            ),
        ] {
            assert_eq!(talk(Starttls::Off, input), want, "{input:?}");
        }
    }

    #[test]
    fn before_tls() {
        assert_eq!(talk(Starttls::On, "STLS\r\nUSER injected\r\n"), "+OK\r\n<TLS>");
        let capa = "+OK Capability list follows\r\nTOP\r\nuser\r\nSASL PLAIN LOGIN CRAM-MD5 EXTERNAL\r\nSTLS\r\n.\r\n";
        assert_eq!(talk(Starttls::On, "CAPA\r\n"), capa);
        let refused = "-ERR invalid command\r\n".repeat(3);
        assert_eq!(talk(Starttls::Only, "USER a\r\nAPOP a b\r\nAUTH PLAIN\r\n"), refused);
        assert_eq!(talk(Starttls::Only, "CAPA\r\n"), "+OK Capability list follows\r\nTOP\r\nSTLS\r\n.\r\n");
    }
}
