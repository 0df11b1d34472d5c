//! IMAP (nginx: `ngx_mail_imap_module`; RFC 9051, 3501, 7888).

mod command;
mod dialogue;
mod server;

use crate::build::{Feature, ServerBuild};
use crate::login::MailLogin;
use crate::protocol::{Dialogue, DialogueProtocol, MailProtocol, Starttls};
use crate::sasl::{ImapMethods, Methods};
use conf_schema::value::{RepeatedValue, Size};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct ImapConf from ImapInput {
        /// Authentication methods offered to clients. LOGIN and AUTHENTICATE with PLAIN and LOGIN are always accepted,
        /// `cram-md5` and `external` only if listed.
        /// Differs: nginx accepts EXTERNAL with an initial response even if it is not listed.
        imap_auth: ImapMethods = "plain",
        /// Capabilities in the response to CAPABILITY; authentication methods and STARTTLS are added automatically.
        imap_capabilities: RepeatedValue = "IMAP4 IMAP4rev1 UIDPLUS",
        /// Maximum size of a command in bytes, literals included.
        imap_client_buffer: Size = "4k",
    }
}

pub struct Imap;

impl Feature for Imap {
    fn table(&self) -> FeatureTable {
        ImapConf::table("imap", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let (Some(conf), MailProtocol::Imap) = (conf.downcast_ref::<ImapConf>(), block.kind) {
            let answers = ImapAnswers::new(Methods(conf.imap_auth.0), &conf.imap_capabilities.0);
            let bytes_max = usize::try_from(conf.imap_client_buffer.0).unwrap_or(usize::MAX);
            block.server.protocol = Some(Arc::new(ImapProtocol { answers: Arc::new(answers), bytes_max }));
        }
        Ok(())
    }
}

pub struct ImapAnswers {
    methods: Methods,
    /// Responses to CAPABILITY, by `starttls`.
    capabilities: [String; 3],
}

impl ImapAnswers {
    fn new(methods: Methods, capabilities: &[Vec<u8>]) -> ImapAnswers {
        let mut plain = "* CAPABILITY".to_string();
        for one in capabilities {
            plain += &format!(" {}", String::from_utf8_lossy(one));
        }
        let only = format!("{plain} STARTTLS LOGINDISABLED\r\n");
        methods.names().for_each(|name| plain += &format!(" AUTH={name}"));
        ImapAnswers { methods, capabilities: [format!("{plain}\r\n"), format!("{plain} STARTTLS\r\n"), only] }
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

struct ImapProtocol {
    answers: Arc<ImapAnswers>,
    bytes_max: usize,
}

impl DialogueProtocol for ImapProtocol {
    fn kind(&self) -> MailProtocol {
        MailProtocol::Imap
    }
    fn command_bytes_max(&self) -> usize {
        self.bytes_max
    }
    fn needs_salt(&self) -> bool {
        self.answers.methods.needs_salt()
    }
    fn greeting(&self, _: &MailLogin) -> Vec<u8> {
        b"* OK IMAP4 ready\r\n".to_vec()
    }
    fn internal_error(&self) -> &'static str {
        "* BAD internal server error\r\n"
    }
    fn certificate_error(&self) -> &'static str {
        "* BYE SSL certificate error\r\n"
    }
    fn no_certificate(&self) -> &'static str {
        "* BYE No required SSL certificate\r\n"
    }
    fn dialogue(&self) -> Box<dyn Dialogue> {
        Box::new(dialogue::ImapDialogue::new(self.answers.clone()))
    }
}

pub fn imap_dialogue(methods: Methods) -> Box<dyn Dialogue> {
    Box::new(dialogue::ImapDialogue::new(Arc::new(ImapAnswers::new(methods, &[b"IMAP4rev1".to_vec()]))))
}
