//! Bodies of fuzz targets; `cargo test` runs them with a seeded generator.

use crate::ssl_preread::{HelloResult, read_hello};

/// Parser of a ClientHello: never panics, and later bytes do not change the result of earlier ones.
pub fn preread_hello(data: &[u8]) {
    let whole = read_hello(data);
    if let HelloResult::Hello(hello) = &whole {
        assert!(hello.server_name.len() + hello.alpn.len() <= data.len());
    }
    let half = read_hello(data.get(..data.len() / 2).unwrap_or_default());
    if half != HelloResult::More {
        assert_eq!(half, whole, "more bytes change what was decided");
    }
}

/// Parser of MQTT's CONNECT packet: never panics, and a packet that it writes is read as it was.
pub fn mqtt_connect(data: &[u8]) {
    crate::mqtt::check_connect(data);
}

/// Panics if a datagram session with a random client and server blocks the thread or miscounts datagrams.
pub fn datagram_session(data: &[u8]) {
    crate::proxy::datagrams::course(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_sessions() {
        let mut random = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
        for length in 0..400 {
            datagram_session(&random.octets(length % 80 + 3));
        }
    }

    #[test]
    fn mqtt_packets() {
        let whole =
            b"\x10\x28\0\x04MQTT\x05\xc6\0\x3c\x05\x11\0\0\0\x0a\0\x02id\0\0\x01t\0\x01p\0\x04user\0\x02pw\x30\0\0";
        let mut random = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
        let mut next = || random.number() as usize;
        for _ in 0..20_000 {
            let mut data = whole.to_vec();
            for _ in 0..next() % 4 {
                let at = next() % data.len();
                data[at] = if next() % 2 == 0 { data[at] ^ 1 << (next() % 8) } else { next() as u8 };
            }
            data.truncate(next() % 80);
            mqtt_connect(&data);
        }
    }

    #[test]
    fn mutated_hellos_are_read() {
        let mut random = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
        let mut next = || random.number();
        for round in 0..20_000 {
            let length = (next() % 200) as usize;
            let mut data: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            if round % 2 == 0 {
                let head =
                    [0x16, 3, 1, 0, length.saturating_sub(5) as u8, 1, 0, 0, length.saturating_sub(9) as u8, 3, 3];
                for (place, byte) in data.iter_mut().zip(head) {
                    *place = byte;
                }
                for byte in data.iter_mut().skip(43) {
                    *byte %= 24;
                }
            }
            preread_hello(&data);
        }
    }
}
