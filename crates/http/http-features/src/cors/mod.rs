//! cors: answers preflight requests and marks responses for scripts of other origins (Fetch standard, 3.2; Gateway API's
//! `HTTPCORSFilter`).

mod conf;

use conf::{Cors, CorsNames, CorsRules};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, Flow, Handler, HandlerOrder, Request, ResponseBody};
use http_types::{Known, Method};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct CorsConf from CorsInput {
        /// Lets scripts of other origins use the responses (CORS). Lines: `allow_origin` with origins (`https://a.example`,
        /// `https://*.a.example` for names of one or more labels before `.a.example`, `*` for all), `allow_methods`, `allow_headers` and
        /// `expose_headers` with names or `*`, `allow_credentials on|off`, and `max_age` of preflight results (5s). `off` turns it off. A
        /// preflight request (OPTIONS with Origin and Access-Control-Request-Method) gets 204 after limits and before access checks, and
        /// is not passed on; `return` in the location precedes it. Other responses of any status get the fields, instead of those of an
        /// upstream server. With credentials, the request's origin, method and fields replace `*`.
        cors: Cors = "off",
    }
}

pub struct CorsFeature;

impl Feature for CorsFeature {
    fn table(&self) -> FeatureTable {
        CorsConf::table("cors", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<CorsConf>() else { return Ok(()) };
        if let Cors(Some(rules)) = &conf.cors {
            block.handle(HandlerOrder::Cors, Arc::new(Preflight));
            block.location.filters.push((FilterOrder::Cors, Arc::new(CorsFields(rules.clone()))));
        }
        Ok(())
    }
}

/// Method of the request that a preflight request asks for; `None` for other requests.
fn asked_method(r: &Request) -> Option<&[u8]> {
    if r.head.method != Method::Options || r.header(Known::Origin).is_none() {
        return None;
    }
    field(r, b"access-control-request-method").filter(|method| !method.is_empty())
}

fn field<'a>(r: &'a Request, name: &[u8]) -> Option<&'a [u8]> {
    r.headers().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Answers preflight requests; [`CorsFields`] adds the fields.
struct Preflight;

impl Handler for Preflight {
    fn run(&self, r: &mut Request) -> Flow {
        if r.is_subrequest() || asked_method(r).is_none() {
            return Flow::Declined;
        }
        r.discard_body();
        r.out.set_status(204);
        Flow::Content(ResponseBody::Empty)
    }
}

struct CorsFields(Arc<CorsRules>);

impl Filter for CorsFields {
    fn name(&self) -> &'static str {
        "cors"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let rules = &self.0;
        r.out.fields_mut().retain(|field| {
            let name = field.name.bytes();
            !name.get(..15).is_some_and(|start| start.eq_ignore_ascii_case(b"access-control-"))
        });
        let is_same_for_all = rules.allows_all() && !rules.credentials;
        if !is_same_for_all {
            r.out.add("Vary", "Origin");
        }
        let origin = r.header(Known::Origin).unwrap_or_default().to_vec();
        if is_same_for_all {
            r.out.add("Access-Control-Allow-Origin", "*");
        } else if !origin.is_empty() && rules.allows(&origin) {
            r.out.add("Access-Control-Allow-Origin", origin);
        } else {
            return Ok(body);
        }
        if rules.credentials {
            r.out.add("Access-Control-Allow-Credentials", "true");
        }
        match asked_method(r).map(<[u8]>::to_vec) {
            Some(method) => {
                let headers = field(r, b"access-control-request-headers").unwrap_or_default().to_vec();
                for (name, names, asked) in [
                    ("Access-Control-Allow-Methods", &rules.methods, method),
                    ("Access-Control-Allow-Headers", &rules.headers, headers),
                ] {
                    let value = match names {
                        CorsNames::All if rules.credentials => asked,
                        names => names.text().to_vec(),
                    };
                    if !value.is_empty() {
                        r.out.add(name, value);
                    }
                }
                r.out.add("Access-Control-Max-Age", rules.max_age.to_string().into_bytes());
                // Browsers read this field in other responses only; Gateway API wants it here, too.
                if !(rules.credentials && matches!(rules.exposed, CorsNames::All)) {
                    add_exposed(r, rules.exposed.text().to_vec());
                }
            }
            None => {
                let exposed = match &rules.exposed {
                    // With credentials, `*` is a name without a meaning of its own.
                    CorsNames::All if rules.credentials => names_of(r),
                    names => names.text().to_vec(),
                };
                add_exposed(r, exposed);
            }
        }
        Ok(body)
    }
}

fn add_exposed(r: &mut Request, names: Vec<u8>) {
    if !names.is_empty() {
        r.out.add("Access-Control-Expose-Headers", names);
    }
}

/// Names of the response's fields, each once; scripts cannot read those of CORS and cookies.
fn names_of(r: &Request) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in r.out.fields().iter().map(|field| field.name.bytes()) {
        let is_hidden = name.to_ascii_lowercase().starts_with(b"access-control-")
            || name.eq_ignore_ascii_case(b"set-cookie")
            || name.eq_ignore_ascii_case(b"vary");
        if !is_hidden && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    names.join(b", ".as_slice())
}
