//! POP3 (nginx: `ngx_mail_pop3_module`; RFC 1939, 2449, 2595, 5034).

mod dialogue;
mod server;

use crate::build::{Feature, ServerBuild};
use crate::login::MailLogin;
use crate::protocol::{Dialogue, DialogueProtocol, MailProtocol, Starttls};
use crate::sasl::{Methods, Pop3Methods};
use conf_schema::value::RepeatedValue;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;

/// In bytes (nginx: the size of its buffer).
const COMMAND_BYTES_MAX: usize = 128;

directives! {
    pub struct Pop3Conf from Pop3Input {
        /// Authentication methods offered to clients. USER, PASS and AUTH PLAIN are always accepted, LOGIN with
        /// `plain`; `apop`, `cram-md5` and `external` only if listed.
        /// Differs: as `imap_auth`.
        pop3_auth: Pop3Methods = "plain",
        /// Capabilities in the response to CAPA; SASL and STLS are added automatically.
        pop3_capabilities: RepeatedValue = "TOP USER UIDL",
    }
}

pub struct Pop3;

impl Feature for Pop3 {
    fn table(&self) -> FeatureTable {
        Pop3Conf::table("pop3", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let (Some(conf), MailProtocol::Pop3) = (conf.downcast_ref::<Pop3Conf>(), block.kind) {
            let methods = Methods(conf.pop3_auth.0).with_login_of_plain();
            block.server.protocol =
                Some(Arc::new(Pop3Protocol(Arc::new(Pop3Answers::new(methods, &conf.pop3_capabilities.0)))));
        }
        Ok(())
    }
}

pub struct Pop3Answers {
    methods: Methods,
    /// Responses to CAPA, by `starttls`.
    capabilities: [String; 3],
    methods_list: String,
}

impl Pop3Answers {
    fn new(methods: Methods, capabilities: &[Vec<u8>]) -> Pop3Answers {
        let lines = |of: Starttls| {
            let mut out = "+OK Capability list follows\r\n".to_string();
            for one in capabilities {
                // Cleartext passwords are not advertised.
                if of != Starttls::Only || !one.eq_ignore_ascii_case(b"USER") {
                    out += &format!("{}\r\n", String::from_utf8_lossy(one));
                }
            }
            if of != Starttls::Only {
                out += "SASL";
                methods.names().for_each(|name| out += &format!(" {name}"));
                out += "\r\n";
            }
            out + if of == Starttls::Off { ".\r\n" } else { "STLS\r\n.\r\n" }
        };
        let mut methods_list = "+OK methods supported:\r\n".to_string();
        methods.names().for_each(|name| methods_list += &format!("{name}\r\n"));
        Pop3Answers {
            methods,
            capabilities: [lines(Starttls::Off), lines(Starttls::On), lines(Starttls::Only)],
            methods_list: methods_list + ".\r\n",
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

struct Pop3Protocol(Arc<Pop3Answers>);

impl DialogueProtocol for Pop3Protocol {
    fn kind(&self) -> MailProtocol {
        MailProtocol::Pop3
    }
    fn command_bytes_max(&self) -> usize {
        COMMAND_BYTES_MAX
    }
    fn needs_salt(&self) -> bool {
        self.0.methods.needs_salt()
    }
    fn greeting(&self, login: &MailLogin) -> Vec<u8> {
        let mut out = b"+OK POP3 ready".to_vec();
        if !login.salt.is_empty() {
            out.push(b' ');
            out.extend_from_slice(&login.salt);
        }
        out.extend_from_slice(b"\r\n");
        out
    }
    fn internal_error(&self) -> &'static str {
        "-ERR internal server error\r\n"
    }
    fn certificate_error(&self) -> &'static str {
        "-ERR SSL certificate error\r\n"
    }
    fn no_certificate(&self) -> &'static str {
        "-ERR No required SSL certificate\r\n"
    }
    fn dialogue(&self) -> Box<dyn Dialogue> {
        Box::new(dialogue::Pop3Dialogue::new(self.0.clone()))
    }
}

pub fn pop3_dialogue(methods: Methods) -> Box<dyn Dialogue> {
    Box::new(dialogue::Pop3Dialogue::new(Arc::new(Pop3Answers::new(methods, &[b"TOP".to_vec(), b"user".to_vec()]))))
}
