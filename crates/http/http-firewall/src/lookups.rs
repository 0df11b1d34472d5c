//! The needs of `@geoLookup` and `@rbl`: a database of places, a resolver. Rules that lack them do not match, and `-t` says so.

use crate::chain::{RuleLines, beside, rule_problem};
use conf_schema::{Cx, Problem};
use geo_variables::places::PlaceDatabase;
use http_engine::BlockPlan;
use http_upstream::resolving::ResolveRules;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use waf::{GeoDatabase, LookupUse, RuleError, RuleSet};

/// The last phase that waits for answers of DNS.
const NAME_PHASE_MAX: u8 = 2;

/// Databases that blocks of the configuration share, by path.
#[derive(Default)]
struct OpenPlaces(HashMap<PathBuf, Arc<RulePlaces>>);

/// A database for `@geoLookup`.
struct RulePlaces(PlaceDatabase);

impl GeoDatabase for RulePlaces {
    fn place_of(&self, address: IpAddr) -> Option<Vec<(String, String)>> {
        self.0.place_of(address)
    }
}

/// Opens the database of `SecGeoLookupDb`. Fails if it cannot be read.
pub(crate) fn open_places(
    cx: &mut Cx,
    rules: &RuleSet,
    lines: &RuleLines,
) -> Result<Option<Arc<dyn GeoDatabase>>, Problem> {
    let Some(file) = &rules.settings.geo_database else { return Ok(None) };
    let path = beside(&file.place.file, &file.name);
    if let Some(known) = cx.get::<OpenPlaces>().0.get(&path) {
        return Ok(Some(known.clone()));
    }
    let opened = PlaceDatabase::open(&path).map_err(|reason| {
        let error = RuleError {
            place: file.place.clone(),
            reason: format!("SecGeoLookupDb \"{}\": {reason}", path.display()),
            suggestion: Some("name a database of countries or cities of MaxMind: .mmdb, or .dat".into()),
        };
        rule_problem(cx, &error, lines)
    })?;
    let places = Arc::new(RulePlaces(opened));
    cx.get::<OpenPlaces>().0.insert(path, places.clone());
    Ok(Some(places))
}

/// Warns about rules that need what the block does not have.
pub(crate) fn warn_lookups(rules: &RuleSet, lines: &RuleLines, block: &mut BlockPlan<'_>) {
    let place = |found: &LookupUse| format!("{}:{}", found.place.file, found.place.line);
    if rules.settings.geo_database.is_none()
        && let Some(first) = rules.place_lookups().first()
    {
        lines.warn(block.cx, &format!("@geoLookup does not match without SecGeoLookupDb in {}", place(first)));
    }
    let names = rules.name_lookups();
    let has_key = rules.settings.block_list_key.is_some();
    if let Some(first) = names.iter().find(|found| found.needs_key && !has_key) {
        let words = "@rbl does not match without SecHttpBlKey, which this list needs, in";
        lines.warn(block.cx, &format!("{words} {}", place(first)));
    }
    if let Some(late) = names.iter().find(|found| found.phase > NAME_PHASE_MAX) {
        let words = format!("@rbl does not match in phase {}: only phases 1 and 2 wait for DNS, in", late.phase);
        lines.warn(block.cx, &format!("{words} {}", place(late)));
    }
    let asked = names.iter().find(|found| found.phase <= NAME_PHASE_MAX && (has_key || !found.needs_key));
    if block.location.ext::<ResolveRules>().is_none()
        && let Some(first) = asked
    {
        lines.warn(block.cx, &format!("@rbl does not match without \"resolver\" in {}", place(first)));
    }
}
