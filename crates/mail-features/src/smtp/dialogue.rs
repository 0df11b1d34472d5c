//! Dialogue with an SMTP client (nginx: `ngx_mail_smtp_parse_command`, `ngx_mail_smtp_auth_state`).

use super::SmtpAnswers;
use super::server::SmtpLogin;
use crate::line;
use crate::login::{Envelope, LoginMethod, MailLogin, shown_text};
use crate::protocol::{
    Dialogue, DialogueContext, DialogueStep, MailRefusal, MailReply, Next, NextStep, ServerLogin, Starttls,
};
use crate::sasl::{self, SaslProgress, WaitingStep};
use std::sync::Arc;

const OK: &str = "250 2.0.0 OK\r\n";
const BYE: &str = "221 2.0.0 Bye\r\n";
const START_TLS: &str = "220 2.0.0 Start TLS\r\n";
const INVALID: &str = "500 5.5.1 Invalid command\r\n";
const INVALID_ARGUMENT: &str = "501 5.5.4 Invalid argument\r\n";
const AUTH_REQUIRED: &str = "530 5.7.1 Authentication required\r\n";
const BAD_SEQUENCE: &str = "503 5.5.1 Bad sequence of commands\r\n";
const REFUSED: &[u8] = b"535 5.7.0";

/// After a command's name.
const ARGUMENTS_MAX: usize = 11;

pub struct SmtpDialogue {
    answers: Arc<SmtpAnswers>,
    sasl: Option<WaitingStep>,
}

impl SmtpDialogue {
    pub fn new(answers: Arc<SmtpAnswers>) -> SmtpDialogue {
        SmtpDialogue { answers, sasl: None }
    }

    fn go_on(&mut self, progress: Option<SaslProgress>) -> Option<NextStep> {
        self.sasl = None;
        match progress? {
            SaslProgress::Done => Some(NextStep::Authenticate),
            SaslProgress::Ask(text, waiting) => {
                self.sasl = Some(waiting);
                Some(MailReply::go(format!("334 {text}\r\n")))
            }
        }
    }

    /// `received`: the complete command.
    fn command(
        &mut self,
        word: &[u8],
        words: &[&[u8]],
        received: &[u8],
        talk: &mut DialogueContext<'_>,
    ) -> Option<NextStep> {
        let line = received.trim_ascii_end();
        let methods = self.answers.methods;
        let envelope = &mut talk.login.envelope;
        match word {
            b"HELO" | b"EHLO" => {
                let [name] = words else { return Some(MailReply::go(INVALID_ARGUMENT)) };
                let extended = word == b"EHLO";
                *envelope =
                    Envelope { helo: name.to_vec(), extended: extended || envelope.extended, ..Envelope::default() };
                let answers = &self.answers;
                Some(MailReply::go(if extended { answers.capabilities(talk.starttls) } else { &answers.helo }))
            }
            b"AUTH" if talk.starttls != Starttls::Only => {
                if words.is_empty() {
                    return Some(MailReply::go(INVALID_ARGUMENT));
                }
                let progress = sasl::begin_exchange(words, methods, talk);
                self.go_on(progress)
            }
            b"QUIT" => Some(MailReply::then(BYE, Next::Quit)),
            b"MAIL" if !methods.none() => {
                // nginx's message includes the line break.
                talk.notes
                    .push(format!("client was rejected: \"{}\"", shown_text(received).replace(['\r', '\n'], "_")));
                Some(MailReply::go(AUTH_REQUIRED))
            }
            b"MAIL" if !envelope.from.is_empty() => Some(MailReply::go(BAD_SEQUENCE)),
            b"RCPT" if envelope.from.is_empty() => Some(MailReply::go(BAD_SEQUENCE)),
            b"MAIL" | b"RCPT" if words.is_empty() => Some(MailReply::go(INVALID_ARGUMENT)),
            b"MAIL" => {
                envelope.from = line.to_vec();
                (talk.login.user, talk.login.password) = (Vec::new(), None);
                Some(MailReply::go(OK))
            }
            b"RCPT" => {
                envelope.to = line.to_vec();
                talk.login.method = LoginMethod::None;
                Some(NextStep::Authenticate)
            }
            b"RSET" => {
                (envelope.from, envelope.to) = (Vec::new(), Vec::new());
                Some(MailReply::go(OK))
            }
            b"NOOP" => Some(MailReply::go(OK)),
            b"STARTTLS" if talk.starttls != Starttls::Off => Some(MailReply::then(START_TLS, Next::StartTls)),
            _ => None,
        }
    }
}

fn is_known(word: &[u8]) -> bool {
    let mail = matches!(word, b"HELO" | b"EHLO" | b"MAIL" | b"RCPT" | b"RSET" | b"VRFY" | b"EXPN");
    mail || matches!(word, b"AUTH" | b"QUIT" | b"NOOP" | b"HELP" | b"STARTTLS")
}

impl Dialogue for SmtpDialogue {
    fn step(&mut self, input: &[u8], talk: &mut DialogueContext<'_>) -> DialogueStep {
        let Some(line) = line::first_line(input) else { return DialogueStep { consumed: 0, then: NextStep::More } };
        let mut invalid = false;
        let then = if let Some(waiting) = self.sasl {
            let words = line::split_words(line.text, ARGUMENTS_MAX);
            invalid = words.is_none();
            let word = words.map(|words| words.first().copied().unwrap_or_default());
            let progress = word.and_then(|word| sasl::answer_word(waiting, word, talk));
            self.go_on(progress)
        } else {
            let command = line::split_command(line.text, 8).filter(|(word, _)| is_known(word));
            let words = command.and_then(|(word, rest)| Some((word, line::split_words(rest, ARGUMENTS_MAX)?)));
            match words {
                Some((word, words)) => self.command(&word, &words, input.get(..line.length).unwrap_or(line.text), talk),
                None => {
                    invalid = true;
                    None
                }
            }
        };
        let then =
            then.unwrap_or_else(|| NextStep::Reply(MailReply { bytes: self.invalid(), next: Next::Go, invalid }));
        DialogueStep { consumed: line.length, then }
    }
    fn invalid(&mut self) -> Vec<u8> {
        self.sasl = None;
        INVALID.into()
    }
    fn refused(&self, refusal: &MailRefusal) -> Vec<u8> {
        [refusal.code.as_deref().unwrap_or(REFUSED), b" ", &refusal.message, b"\r\n"].concat()
    }
    fn restart(&mut self, login: &mut MailLogin, secured: bool) {
        self.sasl = None;
        login.method = LoginMethod::Plain;
        if secured {
            // Data from before the handshake may be injected (RFC 3207, 4.2).
            login.envelope = Envelope::default();
        }
    }
    fn server_login(&self) -> Box<dyn ServerLogin> {
        Box::<SmtpLogin>::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::login::MailLogin;
    use crate::protocol::{MailRefusal, Starttls};
    use crate::sasl::Methods;
    use crate::smtp::smtp_dialogue;
    use crate::testing::{at_every_cut, run_pieces};

    fn talk(methods: u32, starttls: Starttls, input: &str) -> String {
        at_every_cut(&|| smtp_dialogue(Methods(methods)), starttls, input.as_bytes())
    }

    #[test]
    fn commands_and_what_is_answered() {
        let ehlo = "250-host\r\n250-SIZE 100\r\n250 AUTH PLAIN LOGIN\r\n";
        for (input, want) in [
            ("HELO a\r\nehlo a\r\n", format!("250 host\r\n{ehlo}")),
            ("EHLO\r\nEHLO a b\r\n", "501 5.5.4 Invalid argument\r\n".repeat(2)),
            ("AUTH\r\n", "501 5.5.4 Invalid argument\r\n".into()),
            ("AUTH PLAIN AHUAcA==\r\n", "<AUTH plain u p>".into()),
            ("AUTH LOGIN dQ==\r\ncA==\r\n", "334 UGFzc3dvcmQ6\r\n<AUTH plain u p>".into()),
            ("AUTH PLAIN\r\n*\r\nNOOP\r\n", "334 \r\n500 5.5.1 Invalid command\r\n250 2.0.0 OK\r\n".into()),
            ("AUTH CRAM-MD5\r\n", "500 5.5.1 Invalid command\r\n".into()),
            ("MAIL FROM:<a>\r\n", "530 5.7.1 Authentication required\r\n".into()),
            ("RCPT TO:<a>\r\n", "503 5.5.1 Bad sequence of commands\r\n".into()),
            ("VRFY x\r\nDATA\r\nSTARTTLS\r\n", "500 5.5.1 Invalid command\r\n".repeat(3)),
            ("RSET\r\nNOOP x\r\nQUIT\r\nNOOP\r\n", "250 2.0.0 OK\r\n250 2.0.0 OK\r\n221 2.0.0 Bye\r\n<QUIT>".into()),
            ("NOOP\rMAIL\r\nNO\0OP\r\n NOOP\r\n", "500 5.5.1 Invalid command\r\n".repeat(3)),
        ] {
            assert_eq!(talk(3, Starttls::Off, input), want, "{input:?}");
        }
    }

    #[test]
    fn without_a_login() {
        let (mut dialogue, mut login) = (smtp_dialogue(Methods(16)), MailLogin::default());
        let input =
            b"EHLO me\r\nMAIL\r\nMAIL FROM:<a> SIZE=1 \r\nMAIL FROM:<b>\r\nRSET\r\nmail from:<c>\r\nrcpt to:<d>\r\n";
        let said = run_pieces(&mut *dialogue, &mut login, Starttls::Off, &[input]);
        let want = "250-host\r\n250 SIZE 100\r\n501 5.5.4 Invalid argument\r\n250 2.0.0 OK\r\n\
                    503 5.5.1 Bad sequence of commands\r\n250 2.0.0 OK\r\n250 2.0.0 OK\r\n<AUTH none  ->";
        assert_eq!(said, want);
        assert_eq!(login.envelope.helo, b"me");
        assert_eq!(login.envelope.from, b"mail from:<c>");
        assert_eq!(login.envelope.to, b"rcpt to:<d>");
        assert!(login.envelope.extended);
    }

    #[test]
    fn a_rejected_command_is_logged_as_received() {
        for (input, want) in [
            (&b"MAIL FROM:<a>\r\n"[..], "client was rejected: \"MAIL FROM:<a>__\""),
            (b"MAIL FROM:<a> \n", "client was rejected: \"MAIL FROM:<a> _\""),
        ] {
            let (mut login, mut notes) = (MailLogin::default(), Vec::new());
            smtp_dialogue(Methods(3))
                .step(input, &mut crate::testing::dialogue_context(&mut login, Starttls::Off, &mut notes));
            assert_eq!(notes, [want], "{input:?}");
        }
    }

    #[test]
    fn before_tls() {
        assert_eq!(talk(3, Starttls::On, "STARTTLS\r\nMAIL FROM:<a>\r\n"), "220 2.0.0 Start TLS\r\n<TLS>");
        let on = "250-host\r\n250-SIZE 100\r\n250-AUTH PLAIN LOGIN\r\n250 STARTTLS\r\n";
        assert_eq!(talk(3, Starttls::On, "EHLO a\r\n"), on);
        assert_eq!(talk(3, Starttls::Only, "EHLO a\r\n"), "250-host\r\n250-SIZE 100\r\n250 STARTTLS\r\n");
        assert_eq!(talk(3, Starttls::Only, "AUTH PLAIN\r\n"), "500 5.5.1 Invalid command\r\n");
    }

    #[test]
    fn refusals_have_a_code() {
        let dialogue = smtp_dialogue(Methods(3));
        let refusal =
            |code: Option<&str>| MailRefusal { message: b"no".to_vec(), code: code.map(|c| c.as_bytes().to_vec()) };
        assert_eq!(dialogue.refused(&refusal(None)), b"535 5.7.0 no\r\n");
        assert_eq!(dialogue.refused(&refusal(Some("451 4.3.0"))), b"451 4.3.0 no\r\n");
    }
}
