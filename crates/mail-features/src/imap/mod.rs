//! IMAP (nginx: `ngx_mail_imap_module`; RFC 9051, 3501, 7888): `command.rs` reads commands, `dialogue.rs` talks with clients,
//! `server.rs` logs in at servers.

mod command;
mod dialogue;
mod server;

use crate::build::{Feature, ServerBuild};
use crate::login::Login;
use crate::protocol::{Dialogue, Kind, Protocol, Starttls};
use crate::sasl::{ImapMethods, Methods};
use conf_schema::value::{Repeated, Size};
use conf_schema::{Area, Problem, Table, directives};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct ImapConf from ImapInput {
        /// Ways to say who one is: LOGIN, and AUTHENTICATE with PLAIN and LOGIN, are always taken, `cram-md5` and `external` when
        /// they are named; all that are named are told to clients.
        /// Differs: nginx takes EXTERNAL with an initial response whether or not it is named.
        imap_auth: ImapMethods = "plain",
        /// What is answered to CAPABILITY, without methods and STARTTLS, which are added.
        imap_capabilities: Repeated = "IMAP4 IMAP4rev1 UIDPLUS",
        /// Octets of a command, with its literals.
        imap_client_buffer: Size = "4k",
    }
}

/// The feature.
pub struct Imap;

impl Feature for Imap {
    fn table(&self) -> Table {
        ImapConf::table("imap", Area::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let (Some(conf), Kind::Imap) = (conf.downcast_ref::<ImapConf>(), block.kind) {
            let answers = Answers::new(Methods(conf.imap_auth.0), &conf.imap_capabilities.0);
            let bytes_max = usize::try_from(conf.imap_client_buffer.0).unwrap_or(usize::MAX);
            block.server.protocol = Some(Arc::new(ImapProtocol { answers: Arc::new(answers), bytes_max }));
        }
        Ok(())
    }
}

/// What a server answers.
pub struct Answers {
    methods: Methods,
    /// To CAPABILITY, by what `starttls` says.
    capabilities: [String; 3],
}

impl Answers {
    fn new(methods: Methods, capabilities: &[Vec<u8>]) -> Answers {
        let mut plain = "* CAPABILITY".to_string();
        for one in capabilities {
            plain += &format!(" {}", String::from_utf8_lossy(one));
        }
        let only = format!("{plain} STARTTLS LOGINDISABLED\r\n");
        methods.names().for_each(|name| plain += &format!(" AUTH={name}"));
        Answers { methods, capabilities: [format!("{plain}\r\n"), format!("{plain} STARTTLS\r\n"), only] }
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
    answers: Arc<Answers>,
    bytes_max: usize,
}

impl Protocol for ImapProtocol {
    fn kind(&self) -> Kind {
        Kind::Imap
    }
    fn command_bytes_max(&self) -> usize {
        self.bytes_max
    }
    fn needs_salt(&self) -> bool {
        self.answers.methods.needs_salt()
    }
    fn greeting(&self, _: &Login) -> Vec<u8> {
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

/// The dialogue of a server with these methods.
pub fn dialogue(methods: Methods) -> Box<dyn Dialogue> {
    Box::new(dialogue::ImapDialogue::new(Arc::new(Answers::new(methods, &[b"IMAP4rev1".to_vec()]))))
}
