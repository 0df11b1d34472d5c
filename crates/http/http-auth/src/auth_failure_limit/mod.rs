//! auth_failure_limit (Tidegate only): after too many failed logins with an equal key, requests get 429 before their
//! credentials are checked. `http_engine::failed_logins` counts.

use area::bucket::Rate;
use area::shared_limit::{PermitRule, SharedLimit};
use area::shared_store::StoreSlot;
use conf_schema::value::parse_decimal;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::failed_logins::{self, FailureLimit, FailureZone};
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request};
use http_upstream::zones::{self, HttpZone};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct FailureConf from FailureInput {
        /// Limits failed logins by a zone: wrong passwords of `auth_basic` and of `.htaccess` files, refused tokens of `auth_jwt`, and 401 or 403 of
        /// `auth_request` for a request with an `Authorization` field. Beyond rate and burst, requests with the same
        /// key get 429 with `Retry-After`. Simultaneous logins with the same key count before they are judged: those beyond the limit
        /// wait for the others' results. Requests without credentials, expired tokens, and requests that another check admits
        /// (`satisfy any`) are not counted.
        auth_failure_limit: LoginFailureLimit = "off",
        /// Defines a zone for failed logins: the key to count by, the size of its memory, and the rate that is allowed.
        /// A full zone forgets the least recently used keys. With `sync` the failures of all servers of the
        /// `shared_store` count together.
        auth_failure_limit_zone: Zone,
    }
}

const KIND: &str = "auth_failure_limit";

/// `auth_failure_limit`; the burst in thousandths of a failure.
#[derive(Clone)]
pub enum LoginFailureLimit {
    Off,
    By { zone: String, burst: u64 },
}

impl ValueKind for LoginFailureLimit {
    const SYNTAX: &'static str = "zone=name [burst=number] | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut zone, mut burst) = (None, None);
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            if text == "off" && d.args.len() == 1 {
                return Ok(LoginFailureLimit::Off);
            } else if let Some(name) = text.strip_prefix("zone=").filter(|name| !name.is_empty() && zone.is_none()) {
                zone = Some(name.to_string());
            } else if let Some(number) = text.strip_prefix("burst=").filter(|_| burst.is_none()) {
                let wrong = || Problem::says(format!("invalid burst value \"{text}\"")).at(index);
                burst = Some(parse_decimal::<u32>(number).ok_or_else(wrong)?);
            } else {
                return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        let zone = zone.ok_or_else(|| Problem::says("\"auth_failure_limit\" must have \"zone\" parameter"))?;
        Ok(LoginFailureLimit::By { zone, burst: u64::from(burst.unwrap_or(0)) * 1000 })
    }
}

/// `auth_failure_limit_zone`; the zone is found by its name.
#[derive(Clone)]
pub struct Zone;

struct LimitedLogin {
    rate: Rate,
    state: Arc<FailureZone>,
    /// With `sync`, and the size of the zone.
    sync: Option<(StoreSlot, u64)>,
}

impl ValueKind for Zone {
    const SYNTAX: &'static str = "key zone=name:size rate=rate [sync]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let key_text = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let key = HttpTemplate::compile(cx, d, &key_text).map_err(|p| p.at(0))?;
        let (mut zone, mut rate, mut sync) = (None, None, false);
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let text = word.text();
            if text.starts_with("zone=") && zone.is_none() {
                zone = Some(zones::name_and_size(d, index)?);
            } else if let Some(value) = text.strip_prefix("rate=").filter(|_| rate.is_none()) {
                let wrong =
                    || Problem::says(format!("invalid rate \"{text}\"")).at(index).hint("write a rate such as 5r/m");
                rate = Some(Rate::parse(value).filter(|rate| rate.0 > 0).ok_or_else(wrong)?);
            } else if text == "sync" && !sync {
                sync = true;
            } else {
                return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        let missing = |name| Problem::says(format!("\"auth_failure_limit_zone\" must have \"{name}\" parameter"));
        let (name, size) = zone.filter(|(name, _)| !name.is_empty()).ok_or_else(|| missing("zone"))?;
        let rate = rate.ok_or_else(|| missing("rate"))?;
        let state = zones::zone_state(KIND, &name, size, &key_text, || FailureZone::new(size));
        let lack = "the zone counts this server's failed logins";
        let sync = sync.then(|| (StoreSlot::for_sync(cx, d, &name, lack), size));
        let state = Arc::new(LimitedLogin { rate, state, sync });
        zones::declare_zone(cx, d, KIND, HttpZone { name, key, key_text, state })?;
        Ok(Zone)
    }
}

/// The feature.
pub struct AuthFailureLimit;

impl Feature for AuthFailureLimit {
    fn table(&self) -> FeatureTable {
        FailureConf::table("auth_failure_limit", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<FailureConf>() else { return Ok(()) };
        let LoginFailureLimit::By { zone, burst } = &conf.auth_failure_limit else { return Ok(()) };
        let declared: Arc<HttpZone<LimitedLogin>> =
            zones::find_zone(block.cx, KIND, zone).map_err(|problem| problem.of("auth_failure_limit"))?;
        let shared = declared.state.sync.as_ref().map(|(slot, size)| {
            let rule = PermitRule { rate: declared.state.rate.0, burst: *burst, takes_ahead: false };
            Arc::new(SharedLimit::new(slot.clone(), KIND, zone, rule, *size))
        });
        let limit = FailureLimit {
            shared,
            zone: zone.clone(),
            key: declared.key.clone(),
            rate: declared.state.rate,
            burst: *burst,
            state: declared.state.state.clone(),
        };
        block.location.extensions.push(Arc::new(limit));
        block.handle(HandlerOrder::AuthFailureLimit, Arc::new(FailureCheck));
        block.handle(HandlerOrder::AuthFailureCount, Arc::new(Count));
        Ok(())
    }
}

/// Counts a failed login of `satisfy any` after all checks.
struct Count;

impl Handler for Count {
    fn run(&self, r: &mut Request) -> Flow {
        failed_logins::count_pending(r);
        Flow::Declined
    }
}

struct FailureCheck;

impl Handler for FailureCheck {
    fn run(&self, r: &mut Request) -> Flow {
        let plan = r.plan_rc();
        let Some(limit) = plan.loc(r.location_index()).ext::<FailureLimit>() else { return Flow::Declined };
        limit.refusal(r).unwrap_or(Flow::Declined)
    }
}
