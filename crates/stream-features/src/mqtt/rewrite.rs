//! `mqtt_set_connect`: sets fields of a client's CONNECT packet.

use super::connect::{Packet, Whole, whole};
use crate::Template;
use crate::plan::{FirstMessage, Replaced};
use crate::session::StreamSession;
use conf_schema::{Cx, Directive, Problem, Value};
use observe::Level;
use session_engine::Session;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    ClientId,
    UserName,
    Password,
}

#[derive(Clone)]
pub struct Setting {
    field: Field,
    value: Template,
}

impl Value for Setting {
    const SYNTAX: &'static str = "clientid|username|password value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [field, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let field = match &*field.text() {
            "clientid" => Field::ClientId,
            "username" => Field::UserName,
            "password" => Field::Password,
            other => {
                return Err(Problem::says(format!("unknown field \"{other}\""))
                    .at(0)
                    .hint("one of: clientid, username, password"));
            }
        };
        let value = Template::compile(cx, d, &value.bytes).map_err(|p| p.at(1))?;
        Ok(Setting { field, value })
    }
}

/// `mqtt on`
pub struct Rewrite {
    pub settings: Vec<Setting>,
    pub bytes_max: usize,
}

impl FirstMessage for Rewrite {
    fn replace(&self, s: &mut StreamSession, bytes: &[u8]) -> Replaced {
        let (mut packet, length) = match whole(bytes, self.bytes_max) {
            Whole::More => return Replaced::More,
            Whole::Packet(packet, length) => (packet, length),
            Whole::Other => {
                s.log(Level::Info, format_args!("client sent no valid MQTT CONNECT packet"));
                return Replaced::End(400);
            }
            Whole::TooLong(length) => {
                s.log(Level::Error, format_args!("client intended to send too large MQTT packet: {length} bytes"));
                return Replaced::End(400);
            }
        };
        let values: Vec<Vec<u8>> = self.settings.iter().map(|one| one.value.eval(s)).collect();
        for (one, value) in self.settings.iter().zip(&values) {
            let Packet { client_id, user_name, password, .. } = &mut packet;
            match one.field {
                Field::ClientId => *client_id = value,
                Field::UserName => *user_name = Some(value),
                Field::Password => *password = Some(value),
            }
        }
        match packet.write() {
            Some(new) => Replaced::By(length, new),
            None => {
                s.log(Level::Error, format_args!("value of \"mqtt_set_connect\" is too long"));
                Replaced::End(500)
            }
        }
    }
}
