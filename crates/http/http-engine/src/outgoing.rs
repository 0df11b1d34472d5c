//! The filters of responses, in three stages around the parts that need the whole body, and the framing.

use crate::handler::ResponseBody;
use crate::order::FilterStage;
use crate::request::Request;
use http_types::Version;
use std::ops::RangeInclusive;

/// All stages of filters.
pub(crate) const ALL_STAGES: RangeInclusive<FilterStage> = FilterStage::Early..=FilterStage::Late;

/// Applies all filters, without the response's guard: for pages of the server and parts of subrequests.
pub(crate) fn respond(r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
    filter(r, body, &ALL_STAGES)
}

/// Applies the filters of these stages. The last one frames the response. Fails with the status of an error that takes
/// its place.
pub(crate) fn filter(
    r: &mut Request,
    mut body: ResponseBody,
    stages: &RangeInclusive<FilterStage>,
) -> Result<ResponseBody, u16> {
    if r.progress.post_action {
        r.progress.settled = r.progress.filter_failed;
        return Ok(ResponseBody::Empty);
    }
    if r.progress.error_status != 0 {
        r.out.status = r.progress.error_status;
        r.out.status_line = None;
    }
    if r.out.status == 0 {
        r.out.status = 200;
    }
    let plan = r.plan_rc();
    let is_last = *stages.end() == FilterStage::Late;
    if let Some(sub) = &r.family.sub {
        if sub.as_it_comes {
            return Ok(body);
        }
        for (order, filter) in &plan.loc(r.scope.location).filters {
            if order.for_subrequests() && stages.contains(&order.stage()) {
                body = filter.apply(r, body)?;
            }
        }
        if !is_last {
            return Ok(body);
        }
        return Ok(if r.reply.head_only || matches!(r.out.status, 204 | 304) { ResponseBody::Empty } else { body });
    }
    for (order, filter) in &plan.loc(r.scope.location).filters {
        if stages.contains(&order.stage()) {
            body = filter.apply(r, body)?;
        }
    }
    Ok(if is_last { frame(r, body) } else { body })
}

/// nginx: the chunked and header filters.
fn frame(r: &mut Request, mut body: ResponseBody) -> ResponseBody {
    if r.reply.tunnel.is_some() {
        // The tunnel's bytes after the head are not a body.
        r.reply.keep_alive = false;
        return body;
    }
    match r.out.status {
        204 => {
            r.reply.head_only = true;
            // HTTP/1 passes an upstream server's type on, as in nginx.
            if r.out.status_line.is_none() || r.target.version >= Version::Http20 {
                r.out.content_type = crate::Str::default();
            }
            r.out.last_modified = None;
            r.out.content_length = None;
        }
        304 => r.reply.head_only = true,
        _ => {}
    }
    if r.is_head() {
        r.reply.head_only = true;
    }
    if r.reply.expect_trailers
        && !r.is_head()
        && !matches!(r.out.status, 204 | 304)
        && r.out.status >= 200
        && r.target.version >= Version::Http11
        && r.loc().core.conf.chunked_transfer_encoding
    {
        // HTTP/1 alone cannot send trailers after a body with Content-Length.
        if r.target.version == Version::Http11 {
            r.out.content_length = None;
        }
        r.reply.chunked = true;
    }
    let unknown = r.out.content_length.is_none() && !r.reply.chunked;
    if unknown && !matches!(r.out.status, 204 | 304) && r.out.status >= 200 && !r.reply.head_only {
        if let Some(length) = body.length().filter(|_| !r.out.undeclared_length) {
            r.out.content_length = Some(length);
        } else if r.target.version >= Version::Http11 && r.loc().core.conf.chunked_transfer_encoding {
            r.reply.chunked = true;
        } else {
            r.reply.keep_alive = false;
        }
    }
    if r.target.version < Version::Http10 {
        r.reply.keep_alive = false;
    }
    if r.reply.head_only {
        body = ResponseBody::Empty;
    }
    body
}
