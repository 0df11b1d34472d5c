//! Dialogue with an IMAP client (nginx: `ngx_mail_imap_auth_state`).

use super::ImapAnswers;
use super::command::{ParsedCommand, command_tag, parse_command};
use super::server::ImapLogin;
use crate::line;
use crate::login::{LoginMethod, MailLogin};
use crate::protocol::{
    Dialogue, DialogueContext, DialogueStep, MailRefusal, MailReply, Next, NextStep, ServerLogin, Starttls,
};
use crate::sasl::{self, SaslProgress, WaitingStep};
use std::sync::Arc;

const OK: &str = "OK completed\r\n";
const INVALID: &str = "BAD invalid command\r\n";

pub struct ImapDialogue {
    answers: Arc<ImapAnswers>,
    /// Tag of the current command, with the following space; empty if unreadable.
    tag: Vec<u8>,
    sasl: Option<WaitingStep>,
    /// Continuation requests sent for the current command.
    asked: usize,
}

impl ImapDialogue {
    pub fn new(answers: Arc<ImapAnswers>) -> ImapDialogue {
        ImapDialogue { answers, tag: Vec::new(), sasl: None, asked: 0 }
    }

    fn tagged(&self, before: &str, text: &str) -> Vec<u8> {
        let tag = if self.tag.is_empty() { b"* " } else { self.tag.as_slice() };
        [before.as_bytes(), tag, text.as_bytes()].concat()
    }

    fn go_on(&mut self, progress: Option<SaslProgress>) -> Option<NextStep> {
        self.sasl = None;
        match progress? {
            SaslProgress::Done => Some(NextStep::Authenticate),
            SaslProgress::Ask(text, waiting) => {
                self.sasl = Some(waiting);
                Some(MailReply::go(format!("+ {text}\r\n")))
            }
        }
    }

    fn command(&mut self, word: &[u8], arguments: &[Vec<u8>], talk: &mut DialogueContext<'_>) -> Option<NextStep> {
        match word {
            b"NOOP" => Some(MailReply::go(self.tagged("", OK))),
            b"LOGOUT" => Some(MailReply::then(self.tagged("* BYE\r\n", OK), Next::Quit)),
            b"CAPABILITY" => Some(MailReply::go(self.tagged(self.answers.capabilities(talk.starttls), OK))),
            b"STARTTLS" if talk.starttls != Starttls::Off => Some(MailReply::then(self.tagged("", OK), Next::StartTls)),
            b"LOGIN" if talk.starttls != Starttls::Only => match arguments {
                [user, password] if !user.is_empty() => {
                    talk.login.set(LoginMethod::Plain, user, Some(password)).then_some(NextStep::Authenticate)
                }
                _ => None,
            },
            b"AUTHENTICATE" => {
                let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
                let progress = sasl::begin_exchange(&words, self.answers.methods, talk);
                self.go_on(progress)
            }
            _ => None,
        }
    }
}

impl Dialogue for ImapDialogue {
    fn step(&mut self, input: &[u8], talk: &mut DialogueContext<'_>) -> DialogueStep {
        if let Some(waiting) = self.sasl {
            let Some(line) = line::first_line(input) else { return DialogueStep { consumed: 0, then: NextStep::More } };
            let words = line::split_words(line.text, 3);
            let invalid = words.is_none();
            let word = words.map(|words| words.first().copied().unwrap_or_default());
            let progress = word.and_then(|word| sasl::answer_word(waiting, word, talk));
            let then = self.go_on(progress);
            let then =
                then.unwrap_or_else(|| NextStep::Reply(MailReply { bytes: self.invalid(), next: Next::Go, invalid }));
            return DialogueStep { consumed: line.length, then };
        }
        let more = DialogueStep { consumed: 0, then: NextStep::More };
        if memchr::memchr(b'\n', input).is_none() {
            self.tag = command_tag(input).to_vec();
            return more;
        }
        let (parsed, literals) = parse_command(input);
        if literals > self.asked {
            self.asked += 1;
            return DialogueStep { consumed: 0, then: MailReply::go("+ OK\r\n") };
        }
        match parsed {
            ParsedCommand::More => {
                self.tag = command_tag(input).to_vec();
                more
            }
            ParsedCommand::Invalid { tag, length, lost } => {
                self.tag = tag;
                let next = if lost { Next::Quit } else { Next::Go };
                let then = NextStep::Reply(MailReply { bytes: self.invalid(), next, invalid: true });
                DialogueStep { consumed: length, then }
            }
            ParsedCommand::Command { tag, word, arguments, length } => {
                (self.tag, self.asked) = (tag, 0);
                let then = self.command(&word, &arguments, talk);
                let then = then.unwrap_or_else(|| {
                    NextStep::Reply(MailReply { bytes: self.invalid(), next: Next::Go, invalid: false })
                });
                DialogueStep { consumed: length, then }
            }
        }
    }
    fn invalid(&mut self) -> Vec<u8> {
        let bytes = self.tagged("", INVALID);
        self.tag.clear();
        (self.sasl, self.asked) = (None, 0);
        bytes
    }
    fn refused(&self, refusal: &MailRefusal) -> Vec<u8> {
        [self.tag.as_slice(), b"NO ", &refusal.message, b"\r\n"].concat()
    }
    fn restart(&mut self, _: &mut MailLogin, _: bool) {
        self.tag.clear();
        (self.sasl, self.asked) = (None, 0);
    }
    fn server_login(&self) -> Box<dyn ServerLogin> {
        Box::new(ImapLogin::new(self.tag.clone()))
    }
}

#[cfg(test)]
mod tests {
    use crate::imap::imap_dialogue;
    use crate::login::MailLogin;
    use crate::protocol::{NextStep, Starttls};
    use crate::sasl::Methods;
    use crate::testing::at_every_cut;

    fn talk(starttls: Starttls, input: &str) -> String {
        at_every_cut(&|| imap_dialogue(Methods(15)), starttls, input.as_bytes())
    }

    #[test]
    fn commands_and_what_is_answered() {
        for (input, want) in [
            ("a NOOP\r\nb noop\n", "a OK completed\r\nb OK completed\r\n"),
            ("a LOGIN u p\r\n", "<AUTH plain u p>"),
            ("a LOGIN {1}\r\nu {1}\r\np\r\n", "+ OK\r\n+ OK\r\n<AUTH plain u p>"),
            ("a LOGIN {1}\r\nu x y z\r\n", "+ OK\r\na BAD invalid command\r\n"),
            ("a LOGIN {1+}\r\nu {1+}\r\np\r\n", "<AUTH plain u p>"),
            ("a LOGIN \"\" p\r\n", "a BAD invalid command\r\n"),
            ("a LOGIN u\r\n", "a BAD invalid command\r\n"),
            ("a LOGIN {6+}\r\nu\r\nx y p\r\n", "a BAD invalid command\r\n"),
            ("a AUTHENTICATE PLAIN\r\nAHUAcA==\r\n", "+ \r\n<AUTH plain u p>"),
            ("a AUTHENTICATE PLAIN AHUAcA==\r\n", "<AUTH plain u p>"),
            ("a AUTHENTICATE LOGIN\r\ndQ==\r\ncA==\r\n", "+ VXNlcm5hbWU6\r\n+ UGFzc3dvcmQ6\r\n<AUTH plain u p>"),
            ("a AUTHENTICATE PLAIN\r\n*\r\nb NOOP\r\n", "+ \r\na BAD invalid command\r\nb OK completed\r\n"),
            (
                "a CAPABILITY\r\n",
                "* CAPABILITY IMAP4rev1 AUTH=PLAIN AUTH=LOGIN AUTH=CRAM-MD5 AUTH=EXTERNAL\r\na OK completed\r\n",
            ),
            ("a LOGOUT\r\nb NOOP\r\n", "* BYE\r\na OK completed\r\n<QUIT>"),
            ("a SELECT x\r\n*\r\nb NOOP\r\n", "a BAD invalid command\r\n* BAD invalid command\r\nb OK completed\r\n"),
            ("a APPEND {3+}\r\nb NOOP\r\n", "a BAD invalid command\r\n<QUIT>"),
            ("a STARTTLS\r\n", "a BAD invalid command\r\n"),
        ] {
            assert_eq!(talk(Starttls::Off, input), want, "{input:?}");
        }
    }

    /// `invalid` answers a command that exceeds the buffer.
    #[test]
    fn a_command_that_is_too_long_is_answered_with_its_tag() {
        for (input, want) in [
            ("a1 LOGIN xxx", "a1 BAD invalid command\r\n"),
            ("a1 LOGIN {9+}\r\nxxx", "a1 BAD invalid command\r\n"),
            ("xxx", "* BAD invalid command\r\n"),
        ] {
            let (mut dialogue, mut login, mut notes) = (imap_dialogue(Methods(15)), MailLogin::default(), Vec::new());
            let step = dialogue
                .step(input.as_bytes(), &mut crate::testing::dialogue_context(&mut login, Starttls::Off, &mut notes));
            assert_eq!(step.then, NextStep::More);
            assert_eq!(dialogue.invalid(), want.as_bytes(), "{input:?}");
        }
    }

    #[test]
    fn before_tls() {
        assert_eq!(talk(Starttls::On, "a STARTTLS\r\nb LOGIN injected p\r\n"), "a OK completed\r\n<TLS>");
        let refused = "a BAD invalid command\r\n".repeat(2);
        assert_eq!(talk(Starttls::Only, "a LOGIN u p\r\na AUTHENTICATE PLAIN\r\n"), refused);
        let capability = "* CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED\r\na OK completed\r\n";
        assert_eq!(talk(Starttls::Only, "a CAPABILITY\r\n"), capability);
    }
}
