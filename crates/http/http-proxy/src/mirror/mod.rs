//! mirror (nginx: `ngx_http_mirror_module`): copies requests in the background and discards the responses. The next
//! request and the log wait for the copies.

use conf_schema::value::Flag;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::path::CanonicalPath;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, subrequest};
use http_upstream::body_store;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct MirrorConf from MirrorInput {
        /// Copies requests to this URI, as subrequests whose responses are discarded; `off` turns it off. `share=10%` or `share=3/10`
        /// copies that share of the requests, drawn for each request and line; otherwise every request is copied.
        mirror: Targets = "off",
        /// Reads the request body first and sends it with the copy.
        /// Differs: with `off` the copy has no `Content-Length`; nginx keeps the client's, and the server waits for a
        /// body unless `proxy_set_header Content-Length ""` is set.
        mirror_request_body: Flag = "on",
    }
}

#[derive(Clone)]
pub struct Targets {
    uris: Vec<(CanonicalPath, Share)>,
    off: bool,
}

/// Part of the requests, as the number of random values of 32 bits that are in it; `None`: all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share(Option<u32>);

impl Share {
    fn parse(text: &str) -> Option<Share> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let (part, whole): (u64, u64) = match (text.strip_suffix('%'), text.split_once('/')) {
            (Some(percent), _) => {
                let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
                if !is_number(whole) || !is_number(fraction) || fraction.len() > DECIMALS {
                    return None;
                }
                (format!("{whole}{fraction:0<DECIMALS$}").parse().ok()?, 100 * 10_u64.pow(DECIMALS as u32))
            }
            (None, Some((part, whole))) if is_number(part) && is_number(whole) => {
                (part.parse::<u32>().ok()?.into(), whole.parse::<u32>().ok()?.into())
            }
            _ => return None,
        };
        if whole == 0 || part > whole {
            return None;
        }
        Some(Share((part < whole).then(|| ((u128::from(part) << 32) / u128::from(whole)) as u32)))
    }
    fn has(self, random: u32) -> bool {
        self.0.is_none_or(|end| random < end)
    }
}

/// Of a percentage, at most.
const DECIMALS: usize = 4;

impl ValueKind for Targets {
    const SYNTAX: &'static str = "uri [share=part] | off";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        let off = word == b"off";
        let share = match d.args.get(1).map(|word| word.text()) {
            None => Share(None),
            Some(text) => {
                let share = text.strip_prefix("share=").filter(|_| !off).and_then(Share::parse);
                let hint = "a share of the requests: share=10%, share=33.33% or share=3/10";
                share.ok_or_else(|| Problem::says(format!("invalid parameter \"{text}\"")).at(1).hint(hint))?
            }
        };
        let uris = match off {
            true => Vec::new(),
            false => vec![(CanonicalPath::configured(word).map_err(|p| p.at(0))?, share)],
        };
        Ok(Targets { uris, off })
    }
    fn append(&mut self, later: Self) {
        self.uris.extend(later.uris);
        self.off |= later.off;
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.off || later.off { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

pub struct Mirror;

impl Feature for Mirror {
    fn table(&self) -> FeatureTable {
        MirrorConf::table("mirror", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<MirrorConf>() else { return Ok(()) };
        let Targets { uris, .. } = &conf.mirror;
        if !uris.is_empty() {
            let is_shared = uris.iter().any(|(_, share)| share.0.is_some());
            let copy = Copies { uris: uris.as_slice().into(), is_shared, body: conf.mirror_request_body };
            block.handle(HandlerOrder::Mirror, Arc::new(copy));
        }
        Ok(())
    }
}

struct Copies {
    uris: Arc<[(CanonicalPath, Share)]>,
    /// A URI has a share only.
    is_shared: bool,
    body: bool,
}

impl Handler for Copies {
    fn run(&self, r: &mut Request) -> Flow {
        if r.is_subrequest() {
            return Flow::Declined;
        }
        let drawn = match self.is_shared {
            false => self.uris.clone(),
            true => {
                let is_drawn = |share: Share| share.0.is_none() || share.has(u32::from_le_bytes(net::random::bytes()));
                let drawn: Vec<_> = self.uris.iter().filter(|(_, share)| is_drawn(*share)).cloned().collect();
                if drawn.is_empty() {
                    return Flow::Declined;
                }
                drawn.into()
            }
        };
        if !self.body || !r.incoming.is_body_unread() {
            return send(r, &drawn, self.body);
        }
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = match body_store::read_body(&mut r).await {
                    Ok(_) => send(&mut r, &drawn, true),
                    Err(status) => Flow::Status(status),
                };
                (r, flow)
            })
        }))
    }
}

fn send(r: &mut Request, uris: &[(CanonicalPath, Share)], body: bool) -> Flow {
    for (uri, _) in uris {
        let args = r.target.args().to_vec();
        let Ok(mut child) = r.subrequest(uri.clone(), args) else { return Flow::Status(500) };
        child.reply.send_head_only();
        child.set_method_of(r);
        if !body && body_store::stored_body(r).is_none() {
            // A body that is read later is not read for the copy.
            child.leave_body();
        }
        subrequest::run_background(child);
    }
    Flow::Declined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_of_all_requests() {
        let of = |text: &str| Share::parse(text).map(|share| share.0);
        assert_eq!(of("50%"), Some(Some(1 << 31)));
        assert_eq!(of("1/4"), Some(Some(1 << 30)));
        assert_eq!(of("33.33%"), Some(Some(1_431_512_599)));
        assert_eq!(of("100%"), Some(None));
        assert_eq!(of("7/7"), Some(None));
        assert_eq!(of("0%"), Some(Some(0)));
        for wrong in ["", "%", "10", "-1%", "100.0001%", "1.%", ".5%", "1.00000%", "1/0", "3/2", "1/", "/2", "+1/2"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert!(!Share(Some(0)).has(0) && Share(Some(1)).has(0) && !Share(Some(1)).has(1) && Share(None).has(u32::MAX));
    }
}
