//! mqtt_preread (nginx: `ngx_stream_mqtt_preread_module`): client identifier and user name of an MQTT CONNECT packet,
//! without answering it.

mod connect;

use crate::Builtin;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, Looked, Preread};
use crate::session::StreamSession;
use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives};
use connect::{Connect, Read, read};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct MqttConf from MqttInput {
        /// Reads the CONNECT packet of MQTT 3.1.1 or 5.0 in the preread phase, for the variables `$mqtt_preread_...`.
        mqtt_preread: Flag = "off",
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("mqtt_preread_clientid", client_id, "The client identifier of the CONNECT packet (MQTT)."),
    Builtin::one("mqtt_preread_username", user_name, "The user name of the CONNECT packet (MQTT)."),
];

fn client_id(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<Connect>().map(|connect| out.extend_from_slice(&connect.client_id)).is_some()
}

fn user_name(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    s.ext::<Connect>().map(|connect| out.extend_from_slice(&connect.user_name)).is_some()
}

pub struct MqttPreread;

impl Feature for MqttPreread {
    fn table(&self) -> Table {
        MqttConf::table("mqtt_preread", Area::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<MqttConf>().is_some_and(|conf| conf.mqtt_preread) {
            block.server.preread.push(Arc::new(Look));
        }
        Ok(())
    }
}

struct Look;

impl Preread for Look {
    fn look(&self, s: &mut StreamSession, bytes: Option<&[u8]>) -> Looked {
        if s.udp {
            return Looked::Flow(Flow::Declined);
        }
        let Some(bytes) = bytes else { return Looked::More };
        match read(bytes) {
            Read::More => Looked::More,
            Read::Other => Looked::Flow(Flow::Declined),
            Read::Connect(connect) => {
                s.keep(connect);
                Looked::Flow(Flow::Done)
            }
        }
    }
}
