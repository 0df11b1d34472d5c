//! `mqtt_set_connect`: sets fields of a client's CONNECT packet.

use super::connect::{Packet, Whole, read_whole};
use crate::StreamTemplate;
use crate::plan::{FirstMessage, ReplacedHandler};
use crate::session::StreamSession;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use observe::Severity;
use variables::Session;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MqttField {
    ClientId,
    UserName,
    Password,
}

#[derive(Clone)]
pub struct Setting {
    field: MqttField,
    value: StreamTemplate,
}

impl ValueKind for Setting {
    const SYNTAX: &'static str = "clientid|username|password value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [field, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let field = match &*field.text() {
            "clientid" => MqttField::ClientId,
            "username" => MqttField::UserName,
            "password" => MqttField::Password,
            other => {
                return Err(Problem::says(format!("unknown field \"{other}\""))
                    .at(0)
                    .hint("one of: clientid, username, password"));
            }
        };
        let value = StreamTemplate::compile(cx, d, &value.bytes).map_err(|p| p.at(1))?;
        Ok(Setting { field, value })
    }
}

/// `mqtt on`
pub struct MqttRewrite {
    pub settings: Vec<Setting>,
    pub bytes_max: usize,
}

impl FirstMessage for MqttRewrite {
    fn replace(&self, s: &mut StreamSession, bytes: &[u8]) -> ReplacedHandler {
        let (mut packet, length) = match read_whole(bytes, self.bytes_max) {
            Whole::More => return ReplacedHandler::More,
            Whole::Packet(packet, length) => (packet, length),
            Whole::Other => {
                s.log(Severity::Info, format_args!("client sent no valid MQTT CONNECT packet"));
                return ReplacedHandler::End(400);
            }
            Whole::TooLong(length) => {
                s.log(Severity::Error, format_args!("client intended to send too large MQTT packet: {length} bytes"));
                return ReplacedHandler::End(400);
            }
        };
        let values: Vec<Vec<u8>> = self.settings.iter().map(|one| one.value.eval(s)).collect();
        for (one, value) in self.settings.iter().zip(&values) {
            let Packet { client_id, user_name, password, .. } = &mut packet;
            match one.field {
                MqttField::ClientId => *client_id = value,
                MqttField::UserName => *user_name = Some(value),
                MqttField::Password => *password = Some(value),
            }
        }
        match packet.write() {
            Some(new) => ReplacedHandler::By(length, new),
            None => {
                s.log(Severity::Error, format_args!("value of \"mqtt_set_connect\" is too long"));
                ReplacedHandler::End(500)
            }
        }
    }
}
