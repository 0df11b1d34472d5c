//! Calls of the gRPC Health Checking Protocol (`grpc.health.v1.Health/Check`).

use super::GrpcService;
use http_client::{H2Answer, H2Connection};

/// Request line and fields of a call, without `Host`.
pub const LINE: &str = "POST /grpc.health.v1.Health/Check HTTP/1.1\r\n\
                        Content-Type: application/grpc\r\nTE: trailers\r\n";

/// Bytes of a response: a message of a few bytes.
const BODY_MAX: usize = 4096;

/// `ServingStatus::SERVING`
const SERVING: u64 = 1;

/// Calls the protocol with this header block, and judges the response.
pub async fn call_health(connection: &mut H2Connection, block: &[u8], service: &GrpcService) -> Result<(), String> {
    let answer = connection.ask(block, &message(&service.name), BODY_MAX).await?;
    judge(&answer, service)
}

/// Writes a `HealthCheckRequest` with the prefix of gRPC.
fn message(service: &str) -> Vec<u8> {
    let mut request = Vec::new();
    if !service.is_empty() {
        // Field 1, of type LEN.
        request.push(0x0a);
        let mut length = service.len();
        while length > 0x7f {
            request.push(length as u8 | 0x80);
            length >>= 7;
        }
        request.push(length as u8);
        request.extend_from_slice(service.as_bytes());
    }
    let mut out = vec![0];
    out.extend_from_slice(&(request.len() as u32).to_be_bytes());
    out.extend_from_slice(&request);
    out
}

fn judge(answer: &H2Answer, service: &GrpcService) -> Result<(), String> {
    if answer.status != 200 {
        return Err(format!("status {}", answer.status));
    }
    // A response without a message has its status in the head.
    let status = answer.trailer("grpc-status").or_else(|| answer.field("grpc-status"));
    let status = status.ok_or("a response without a gRPC status")?;
    let code = std::str::from_utf8(status).ok().and_then(conf_schema::value::parse_decimal::<u32>);
    match code.ok_or("an invalid gRPC status")? {
        0 => {}
        code if service.accepted == Some(code) => return Ok(()),
        code => return Err(format!("gRPC status {code}")),
    }
    match serving(&answer.body).ok_or("an invalid gRPC message")? {
        SERVING => Ok(()),
        0 => Err("serving status UNKNOWN".into()),
        2 => Err("serving status NOT_SERVING".into()),
        3 => Err("serving status SERVICE_UNKNOWN".into()),
        other => Err(format!("serving status {other}")),
    }
}

/// Reads the status of a `HealthCheckResponse` with its prefix.
fn serving(body: &[u8]) -> Option<u64> {
    let (prefix, mut rest) = body.split_first_chunk::<5>()?;
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 || u32::from_be_bytes(length) as usize != rest.len() {
        return None;
    }
    // An absent field has the value 0; of repeated fields, the last one counts.
    let mut status = 0;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match key & 7 {
            0 if key == 8 => status = varint(&mut rest)?,
            0 => drop(varint(&mut rest)?),
            1 => rest = rest.get(8..)?,
            2 => {
                let length = varint(&mut rest)?;
                rest = rest.get(usize::try_from(length).ok()?..)?;
            }
            5 => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, more) = rest.split_first()?;
        *rest = more;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        vec![(name.into(), value.into())]
    }

    #[test]
    fn requests_name_the_service() {
        assert_eq!(message(""), [0, 0, 0, 0, 0]);
        assert_eq!(message("a.B"), b"\0\0\0\0\x05\x0a\x03a.B");
        let long = message(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 5 + 3 + 300);
    }

    #[test]
    fn responses_are_judged_by_status_and_message() {
        let says = |body: &[u8], accepted: Option<u32>, trailers: &str| {
            let answer = H2Answer {
                status: 200,
                body: body.into(),
                trailers: field("grpc-status", trailers),
                ..H2Answer::default()
            };
            judge(&answer, &GrpcService { name: String::new(), accepted })
        };
        assert_eq!(says(b"\0\0\0\0\x02\x08\x01", None, "0"), Ok(()));
        // With fields of later versions.
        assert_eq!(says(b"\0\0\0\0\x08\x12\x01x\x08\x01\x18\xff\x01", None, "0"), Ok(()));
        assert_eq!(says(b"\0\0\0\0\x0e\x11........\x1d\0\0\0\0", None, "0"), Err("serving status UNKNOWN".into()));
        assert_eq!(says(b"\0\0\0\0\x02\x08\x02", Some(12), "0"), Err("serving status NOT_SERVING".into()));
        assert_eq!(says(b"\0\0\0\0\x02\x08\x03", None, "0"), Err("serving status SERVICE_UNKNOWN".into()));
        for wrong in
            [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\x02\x08\x01", b"\0\0\0\0\x03\x08\x01", b"\0\0\0\0\x02\x08\x81"]
        {
            assert_eq!(says(wrong, None, "0"), Err("an invalid gRPC message".into()), "{wrong:?}");
        }
        assert_eq!(says(b"", Some(12), "12"), Ok(()));
        assert_eq!(says(b"", Some(12), "5"), Err("gRPC status 5".into()));
        assert_eq!(says(b"", None, "12"), Err("gRPC status 12".into()));
        assert_eq!(says(b"", None, "x"), Err("an invalid gRPC status".into()));

        let answer = H2Answer { status: 200, fields: field("grpc-status", "12"), ..H2Answer::default() };
        assert_eq!(judge(&answer, &GrpcService { accepted: Some(12), ..GrpcService::default() }), Ok(()));
        let answer = H2Answer { status: 503, ..H2Answer::default() };
        assert_eq!(judge(&answer, &GrpcService::default()), Err("status 503".into()));
        let answer = H2Answer { status: 200, ..H2Answer::default() };
        assert_eq!(judge(&answer, &GrpcService::default()), Err("a response without a gRPC status".into()));
    }
}
