//! Bodies of fuzz targets: any bytes of a client; a panic reports a violation.

use crate::login::{MailLogin, fits_command};
use crate::protocol::{Dialogue, DialogueContext, Next, NextStep, Starttls};
use crate::sasl::Methods;

/// In bytes.
const COMMAND_BYTES_MAX: usize = 4096;

/// Takes protocol, methods and `starttls` from two bytes, the cuts from a third, then input. Panics if answers depend
/// on the cuts or a login contains a command.
pub fn mail_dialogue(data: &[u8]) {
    let [which, methods, cut, input @ ..] = data else { return };
    let methods = Methods(u32::from(*methods) & 63);
    let starttls = match which % 3 {
        0 => Starttls::Off,
        1 => Starttls::On,
        _ => Starttls::Only,
    };
    let make = || match which / 3 % 3 {
        0 => crate::imap::imap_dialogue(methods),
        1 => crate::pop3::pop3_dialogue(methods),
        _ => crate::smtp::smtp_dialogue(methods),
    };
    let input = input.get(..COMMAND_BYTES_MAX).unwrap_or(input);
    let whole = talk(make(), starttls, &[input]);
    let at = usize::from(*cut).min(input.len());
    let (head, tail) = input.split_at(at);
    assert_eq!(talk(make(), starttls, &[head, tail]), whole, "cut at {at}");
}

/// Panics if a value from an authentication server's response does not fit into a command.
pub fn mail_auth(data: &[u8]) {
    if let Ok(Some(response)) = crate::auth_http::read_response(data) {
        let values = [response.user, response.password, response.refused, response.error_code];
        assert!(values.iter().flatten().all(|value| fits_command(value)));
        assert!(fits_command(&response.server) && fits_command(&response.port));
    }
}

fn talk(mut dialogue: Box<dyn Dialogue>, starttls: Starttls, pieces: &[&[u8]]) -> Vec<u8> {
    let mut login = MailLogin { salt: b"<1.2@h>".to_vec(), ..MailLogin::default() };
    let (mut input, mut out, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let step = dialogue.step(&input, &mut DialogueContext { login: &mut login, starttls, notes: &mut notes });
            assert!(step.consumed <= input.len());
            input.drain(..step.consumed);
            match step.then {
                NextStep::More => break,
                NextStep::Reply(reply) => {
                    assert!(reply.bytes.ends_with(b"\r\n"));
                    out.extend_from_slice(&reply.bytes);
                    if reply.next != Next::Go {
                        return out;
                    }
                }
                NextStep::Authenticate => {
                    let MailLogin { user, password, envelope, .. } = &login;
                    let lines = [user, &envelope.helo, &envelope.from, &envelope.to];
                    assert!(lines.into_iter().chain(password).all(|value| fits_command(value)));
                    out.extend_from_slice(user);
                    dialogue.restart(&mut login, false);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_talks() {
        const WORDS: &[&[u8]] = &[
            b"a ",
            b"LOGIN ",
            b"AUTHENTICATE PLAIN",
            b"{3}\r\n",
            b"{2+}\r\n",
            b"\"x\\\" y\" ",
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b"USER u",
            b"PASS p",
            b"AUTH ",
            b"LOGIN",
            b"CRAM-MD5",
            b"AHUAcA==",
            b"dQ==",
            b"EHLO h",
            b"MAIL FROM:<a>",
            b"RCPT TO:<b>",
            b"STARTTLS",
            b"STLS",
            b"QUIT",
            b"CAPA",
            b"RSET",
            b" ",
            b"*",
            b"}",
            b"APOP u 0",
        ];
        let mut state = 1_u64;
        let mut random = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..20_000 {
            let mut data = vec![random(256) as u8, random(256) as u8, random(64) as u8];
            for _ in 0..random(16) {
                data.extend_from_slice(WORDS[random(WORDS.len())]);
            }
            mail_dialogue(&data);
        }
    }

    #[test]
    fn responses_that_were_tampered_with() {
        let good =
            b"HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: 25\r\nAuth-User: u\r\n\r\n";
        for at in 0..good.len() {
            for byte in [0, b'\r', b'\n', b':', b' ', 0xff] {
                let mut bad = good.to_vec();
                bad[at] = byte;
                mail_auth(&bad);
            }
        }
    }
}
