//! MQTT (nginx: `ngx_stream_mqtt_preread_module`, `ngx_stream_mqtt_filter_module`): client identifier and user name of a
//! CONNECT packet for variables, and other values for the server (`rewrite.rs`).

mod connect;
mod rewrite;

use crate::Builtin;
use crate::build::{Feature, ServerBuild};
use crate::plan::{Flow, LookedUp, Preread};
use crate::session::StreamSession;
use conf_schema::value::{Buffers, Flag, Size, ValueList};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use connect::{Connect, Read, read_connect};
use rewrite::{MqttRewrite, Setting};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct MqttConf from MqttInput {
        /// Reads the CONNECT packet of MQTT 3.1.1 or 5.0 in the preread phase, for the variables `$mqtt_preread_...`.
        mqtt_preread: Flag = "off",
        /// Expects a CONNECT packet of MQTT 3.1.1 or 5.0 as the first message of a client, and sets the fields of `mqtt_set_connect` in
        /// it. Sessions that begin otherwise end before a server is connected. `proxy_timeout` limits the time until the
        /// packet is complete.
        mqtt: Flag = "off",
        /// Number and size of buffers: their product is the maximum length of a CONNECT packet. Later packets pass unchanged
        /// and need no buffers.
        mqtt_buffers: Buffers = "100 1k",
        /// Obsolete, see `mqtt_buffers`; accepted with a warning and without an effect.
        mqtt_rewrite_buffer_size: OldSize,
        /// Sets a field of the CONNECT packet (`clientid`, `username` or `password`), also if the client sends none.
        mqtt_set_connect: ValueList<Setting>,
    }
}

/// `mqtt_rewrite_buffer_size`
#[derive(Clone)]
pub struct OldSize;

impl ValueKind for OldSize {
    const SYNTAX: &'static str = "size";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Size::parse(cx, d)?;
        cx.warn(
            d,
            "the \"mqtt_rewrite_buffer_size\" directive is obsolete, use the \"mqtt_buffers\" directive instead",
        );
        Ok(OldSize)
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

pub struct Mqtt;

impl Feature for Mqtt {
    fn table(&self) -> FeatureTable {
        MqttConf::table("mqtt", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MqttConf>() else { return Ok(()) };
        if conf.mqtt_preread {
            block.server.preread.push(Arc::new(MqttLook));
        }
        if conf.mqtt {
            let settings = conf.mqtt_set_connect.as_ref().map(|list| list.0.clone()).unwrap_or_default();
            let bytes_max = conf.mqtt_buffers.count.saturating_mul(conf.mqtt_buffers.size);
            let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
            block.server.first_message = Some(Arc::new(MqttRewrite { settings, bytes_max }));
        }
        Ok(())
    }
}

struct MqttLook;

impl Preread for MqttLook {
    fn look(&self, s: &mut StreamSession, bytes: Option<&[u8]>) -> LookedUp {
        if s.udp {
            return LookedUp::Flow(Flow::Declined);
        }
        let Some(bytes) = bytes else { return LookedUp::More };
        match read_connect(bytes) {
            Read::More => LookedUp::More,
            Read::Other => LookedUp::Flow(Flow::Declined),
            Read::Connect(connect) => {
                s.keep(connect);
                LookedUp::Flow(Flow::Done)
            }
        }
    }
}

/// Body of the fuzz target `mqtt_connect`.
pub fn check_connect(data: &[u8]) {
    let preread = read_connect(data);
    if let connect::Whole::Packet(packet, length) = connect::read_whole(data, usize::MAX) {
        assert!(length <= data.len(), "a packet that is not whole");
        assert!(preread != Read::More && preread != Read::Other, "a packet that cannot be preread");
        let Some(written) = packet.write() else { panic!("fields of a packet fit into a packet") };
        match connect::read_whole(&written, usize::MAX) {
            connect::Whole::Packet(again, all) => assert!(again == packet && all == written.len(), "another packet"),
            other => panic!("{other:?}"),
        }
    }
}
