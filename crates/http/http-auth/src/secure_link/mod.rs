//! secure_link (nginx: `ngx_http_secure_link_module`): links with a digest and optional expiry.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use conf_schema::value::Text;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HttpTemplate, Request};
use md5::{Digest, Md5};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct LinkConf from LinkInput {
        /// String with the digest of a link and, after a comma, its expiry in seconds since 1970.
        secure_link: HttpTemplate,
        /// String whose MD5 digest a valid link has.
        secure_link_md5: HttpTemplate,
        /// Secret word for links of the form /prefix/digest/link.
        secure_link_secret: Text,
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one(
        "secure_link",
        secure_link,
        "Empty for a wrong digest, `0` for a link that has expired, else `1` or the link.",
    ),
    Builtin::one("secure_link_expires", secure_link_expires, "The end of the link's validity, as the request has it."),
];

pub struct SecureLink;

impl Feature for SecureLink {
    fn table(&self) -> FeatureTable {
        let mut table = LinkConf::table("secure_link", ContextArea::Http);
        // The modes exclude each other: a block's own lines prevent inheriting the other mode.
        table.inherit = |inner, outer| {
            if let (Some(inner), Some(outer)) = (inner.downcast_mut::<LinkInput>(), outer.downcast_ref::<LinkInput>())
                && inner.secure_link_secret.is_none()
            {
                inner.secure_link = inner.secure_link.take().or_else(|| outer.secure_link.clone());
                inner.secure_link_md5 = inner.secure_link_md5.take().or_else(|| outer.secure_link_md5.clone());
                if inner.secure_link.is_none() && inner.secure_link_md5.is_none() {
                    inner.secure_link_secret.clone_from(&outer.secure_link_secret);
                }
            }
        };
        table
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<LinkConf>() else { return Ok(()) };
        let link = match (&conf.secure_link_secret, &conf.secure_link, &conf.secure_link_md5) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                return Err(Problem::says(
                    "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"",
                ));
            }
            (Some(secret), None, None) => SecureLinkRule::Secret(secret.0.clone()),
            (None, Some(link), Some(md5)) => SecureLinkRule::Digest { link: link.clone(), md5: md5.clone() },
            _ => return Ok(()),
        };
        block.location.extensions.push(Arc::new(link));
        Ok(())
    }
}

enum SecureLinkRule {
    Digest { link: HttpTemplate, md5: HttpTemplate },
    Secret(Vec<u8>),
}

struct LinkExpiry(Vec<u8>);

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

fn secure_link(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let plan = r.plan_rc();
    match plan.locations.get(r.location_index()).and_then(|location| location.ext::<SecureLinkRule>()) {
        None => false,
        Some(SecureLinkRule::Secret(secret)) => {
            let uri = r.head.request_uri().of(&r.buf);
            match link_of(uri, secret) {
                Some(link) => {
                    out.extend_from_slice(link);
                    true
                }
                None => false,
            }
        }
        Some(SecureLinkRule::Digest { link, md5 }) => {
            let value = link.eval(r);
            let mut expires = 0;
            let mut parts = value.splitn(2, |c| *c == b',');
            let digest = parts.next().unwrap_or_default();
            if let Some(end) = parts.next() {
                let number = std::str::from_utf8(end).ok().filter(|t| t.bytes().all(|c| c.is_ascii_digit()));
                match number.and_then(|t| t.parse::<i64>().ok()).filter(|n| *n > 0) {
                    Some(seconds) => expires = seconds,
                    None => return false,
                }
                r.keep(LinkExpiry(end.to_vec()));
            }
            let Ok(given) = BASE64URL.decode(digest) else { return false };
            let right = Md5::digest(md5.eval(r));
            if given.len() != 16 || !equal(&given, &right) {
                return false;
            }
            out.push(if expires != 0 && expires < base::clock::unix_seconds() { b'0' } else { b'1' });
            true
        }
    }
}

/// Link of `/prefix/digest/link`, if the digest is valid.
fn link_of<'a>(uri: &'a [u8], secret: &[u8]) -> Option<&'a [u8]> {
    let mut parts = uri.get(1..)?.splitn(3, |c| *c == b'/').skip(1);
    let (digest, link) = (parts.next()?, parts.next()?);
    if digest.len() != 32 || link.is_empty() {
        return None;
    }
    let mut given = [0u8; 16];
    for (byte, pair) in given.iter_mut().zip(digest.as_chunks::<2>().0) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    let right = Md5::new().chain_update(link).chain_update(secret).finalize();
    equal(&given, &right).then_some(link)
}

/// Compares in constant time.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
}

fn secure_link_expires(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.ext::<LinkExpiry>().map(|expires| out.extend_from_slice(&expires.0)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_a_secret() {
        let digest: String = Md5::digest(b"top_secret.htmlword").iter().map(|b| format!("{b:02x}")).collect();
        let uri = format!("/p/{digest}/top_secret.html");
        assert_eq!(link_of(uri.as_bytes(), b"word"), Some(b"top_secret.html".as_slice()));
        for wrong in [format!("/p/{digest}/other"), format!("/p/{digest}/"), "/p/x/y".into(), "/".into(), String::new()]
        {
            assert_eq!(link_of(wrong.as_bytes(), b"word"), None, "{wrong}");
        }
    }

    #[test]
    fn digests_with_and_without_padding() {
        for text in ["vGdGoZGEnr1tPHX0yPTVnA", "vGdGoZGEnr1tPHX0yPTVnA=="] {
            assert_eq!(BASE64URL.decode(text).map(|b| b.len()), Ok(16));
        }
    }
}
