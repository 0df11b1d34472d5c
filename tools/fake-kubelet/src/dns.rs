//! The program of containers with a name server.

use std::net::Ipv4Addr;

use tokio::net::UdpSocket;

/// Bytes of a query at most, as without EDNS (RFC 1035, 2.3.4).
const QUERY_MAX: usize = 512;

/// Answers each query with its own bytes as a response, until the process ends.
pub async fn answer_queries() -> Result<(), String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 53)).await.map_err(|error| format!("port 53: {error}"))?;
    println!("name server on port 53");
    let mut bytes = [0; QUERY_MAX];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut bytes).await else { continue };
        if let Some(response) = response(&bytes[..length]) {
            // A client that is gone needs no answer.
            let _ = socket.send_to(&response, client).await;
        }
    }
}

/// Returns the query with the bit of responses (RFC 1035, 4.1.1); `None` for a datagram without a whole header.
fn response(query: &[u8]) -> Option<Vec<u8>> {
    let mut response = query.get(..12).map(|_| query.to_vec())?;
    response[2] |= 0x80;
    Some(response)
}

#[cfg(test)]
mod tests {
    #[test]
    fn responses_have_the_number_of_their_query() {
        let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03foo\x00\x00\x01\x00\x01";
        let response = super::response(query).unwrap();
        assert_eq!(&response[..3], b"\x12\x34\x81");
        assert_eq!(&response[3..], &query[3..]);
        assert_eq!(super::response(b"\x12\x34"), None);
    }
}
