//! API end points of zones: servers, locations, caches, limits, resolvers and shared memory.

use super::answer::{ApiError, ApiResponse, select_collection, select_fields};
use super::ask::{ApiRequest, Verb};
use super::path::EndPoint;
use crate::shared::status_tree::{Side, zones as tree};
use metrics::{MetricTable, Reading};
use serde_json::Value;

/// A kind of zone with metrics of type `S`.
struct ZoneKind<'a, S> {
    show: fn(&Reading<S>, u32) -> Value,
    /// Tells whether a zone belongs to the end point.
    has: &'a dyn Fn(&str) -> bool,
    missing: ApiError,
}

impl<S: MetricTable> ZoneKind<'_, S> {
    fn run(self, ask: &ApiRequest, name: Option<&str>, version: u32) -> Result<ApiResponse, ApiError> {
        let fields = ask.fields.as_deref();
        let all = metrics::zone_readings::<S>();
        let label = |zone: &Reading<S>| zone.labels.first().cloned().unwrap_or_default();
        let mut mine = all.iter().filter(|zone| (self.has)(&label(zone)));
        let Some(name) = name else {
            if ask.verb != Verb::Get {
                return Err(ApiError::method());
            }
            let all = mine.map(|zone| (label(zone), (self.show)(zone, version))).collect();
            return Ok(ApiResponse::json(&select_collection(all, fields)));
        };
        let zone = mine.find(|zone| label(zone) == name).ok_or(self.missing)?;
        if ask.verb == Verb::Delete {
            metrics::reset_zones::<S>(&[name]);
            return Ok(ApiResponse::done());
        }
        Ok(ApiResponse::json(&select_fields((self.show)(zone, version), fields)))
    }
}

pub fn answer_zones(ask: &ApiRequest, end: &EndPoint<'_>, version: u32) -> Result<ApiResponse, ApiError> {
    let missing = |code: &'static str, text: &str| ApiError::new(404, code, text);
    let any = |_: &str| true;
    match *end {
        EndPoint::ServerZones(Side::Http, name) => {
            let missing = missing("ServerZoneNotFound", "server zone not found");
            ZoneKind { show: tree::server_object, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::ServerZones(Side::Stream, name) => {
            let missing = missing("ServerZoneNotFound", "server zone not found");
            ZoneKind { show: tree::stream_server, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::LocationZones(name) => {
            let missing = missing("LocationZoneNotFound", "location zone not found");
            ZoneKind { show: tree::location_object, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::Caches(name) => {
            let missing = missing("CacheNotFound", "cache not found");
            ZoneKind { show: tree::cache_object, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::LimitReqs(name) => {
            let missing = missing("LimitReqNotFound", "limit_req not found");
            ZoneKind { show: tree::limit_reqs, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::LimitConns(side, name) => {
            let area = ask.area(side);
            let has = |name: &str| area.has_limit(name);
            let missing = missing("LimitConnNotFound", "limit_conn not found");
            ZoneKind { show: tree::limit_conns, has: &has, missing }.run(ask, name, version)
        }
        EndPoint::Resolvers(name) => {
            let missing = missing("ResolverZoneNotFound", "resolver zone not found");
            ZoneKind { show: tree::resolver_object, has: &any, missing }.run(ask, name, version)
        }
        EndPoint::Slabs(name) => slabs(ask, name),
        _ => Err(ApiError::method()),
    }
}

fn slabs(ask: &ApiRequest, name: Option<&str>) -> Result<ApiResponse, ApiError> {
    let all = tree::slabs_object(&ask.inventory);
    let fields = ask.fields.as_deref();
    match (name, ask.verb) {
        (None, Verb::Get) => Ok(ApiResponse::json(&select_collection(all, fields))),
        (None, _) => Err(ApiError::method()),
        (Some(name), verb) => {
            let missing = || ApiError::new(404, "SlabNotFound", "slab not found");
            let zone = all.get(name).ok_or_else(missing)?;
            // A reset would clear only the counts of slots, which Tidegate does not have.
            Ok(if verb == Verb::Get {
                ApiResponse::json(&select_fields(zone.clone(), fields))
            } else {
                ApiResponse::done()
            })
        }
    }
}
