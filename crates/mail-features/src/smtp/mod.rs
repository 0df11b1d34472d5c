//! SMTP (nginx: `ngx_mail_smtp_module`; RFC 5321, 3207, 4954).

mod dialogue;
mod server;

use crate::build::{Feature, ServerBuild};
use crate::login::MailLogin;
use crate::protocol::{Dialogue, DialogueProtocol, MailProtocol, Starttls};
use crate::sasl::{Methods, SmtpMethods};
use conf_schema::value::{Msec, RepeatedValue, Size};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

directives! {
    pub struct SmtpConf from SmtpInput {
        /// Authentication methods offered to clients. PLAIN and LOGIN are always accepted, `cram-md5` and `external`
        /// only if listed; with `none` clients need not authenticate.
        /// Differs: as `imap_auth`.
        smtp_auth: SmtpMethods = "plain login",
        /// Extensions in the response to EHLO; AUTH and STARTTLS are added automatically.
        smtp_capabilities: RepeatedValue,
        /// Maximum size of a command in bytes.
        smtp_client_buffer: Size = "4k",
        /// Delay before the greeting; a client that sends data earlier is rejected.
        smtp_greeting_delay: Msec = "0",
    }
}

pub struct Smtp;

impl Feature for Smtp {
    fn table(&self) -> FeatureTable {
        SmtpConf::table("smtp", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let (Some(conf), MailProtocol::Smtp) = (conf.downcast_ref::<SmtpConf>(), block.kind) {
            let capabilities = conf.smtp_capabilities.as_ref().map(|c| c.0.as_slice()).unwrap_or_default();
            let answers = SmtpAnswers::new(&block.server.name, Methods(conf.smtp_auth.0), capabilities);
            block.server.protocol = Some(Arc::new(SmtpProtocol {
                answers: Arc::new(answers),
                bytes_max: usize::try_from(conf.smtp_client_buffer.0).unwrap_or(usize::MAX),
                delay: conf.smtp_greeting_delay.duration(),
            }));
        }
        Ok(())
    }
}

pub struct SmtpAnswers {
    methods: Methods,
    greeting: String,
    helo: String,
    /// Responses to EHLO, by `starttls`.
    capabilities: [String; 3],
}

impl SmtpAnswers {
    fn new(name: &str, methods: Methods, capabilities: &[Vec<u8>]) -> SmtpAnswers {
        let lines = |of: Starttls| {
            let mut lines = vec![name.to_string()];
            lines.extend(capabilities.iter().map(|one| String::from_utf8_lossy(one).into_owned()));
            let names: Vec<&str> = methods.names().collect();
            if of != Starttls::Only && !names.is_empty() {
                lines.push(format!("AUTH {}", names.join(" ")));
            }
            if of != Starttls::Off {
                lines.push("STARTTLS".into());
            }
            let last = lines.len() - 1;
            let line = |(i, line): (usize, &String)| format!("250{}{line}\r\n", if i == last { ' ' } else { '-' });
            lines.iter().enumerate().map(line).collect::<String>()
        };
        SmtpAnswers {
            methods,
            greeting: format!("220 {name} ESMTP ready\r\n"),
            helo: format!("250 {name}\r\n"),
            capabilities: [lines(Starttls::Off), lines(Starttls::On), lines(Starttls::Only)],
        }
    }
    fn capabilities(&self, starttls: Starttls) -> &str {
        let [off, on, only] = &self.capabilities;
        match starttls {
            Starttls::Off => off,
            Starttls::On => on,
            Starttls::Only => only,
        }
    }
}

struct SmtpProtocol {
    answers: Arc<SmtpAnswers>,
    bytes_max: usize,
    delay: Duration,
}

impl DialogueProtocol for SmtpProtocol {
    fn kind(&self) -> MailProtocol {
        MailProtocol::Smtp
    }
    fn command_bytes_max(&self) -> usize {
        self.bytes_max
    }
    fn needs_salt(&self) -> bool {
        self.answers.methods.needs_salt()
    }
    fn greeting(&self, _: &MailLogin) -> Vec<u8> {
        self.answers.greeting.clone().into_bytes()
    }
    fn greeting_delay(&self) -> Duration {
        self.delay
    }
    fn too_early(&self) -> &'static str {
        "503 5.5.0 Improper use of SMTP command pipelining\r\n"
    }
    fn wants_host(&self) -> bool {
        true
    }
    fn internal_error(&self) -> &'static str {
        "451 4.3.2 Internal server error\r\n"
    }
    fn certificate_error(&self) -> &'static str {
        "421 4.7.1 SSL certificate error\r\n"
    }
    fn no_certificate(&self) -> &'static str {
        "421 4.7.1 No required SSL certificate\r\n"
    }
    fn dialogue(&self) -> Box<dyn Dialogue> {
        Box::new(dialogue::SmtpDialogue::new(self.answers.clone()))
    }
}

pub fn smtp_dialogue(methods: Methods) -> Box<dyn Dialogue> {
    Box::new(dialogue::SmtpDialogue::new(Arc::new(SmtpAnswers::new("host", methods, &[b"SIZE 100".to_vec()]))))
}
