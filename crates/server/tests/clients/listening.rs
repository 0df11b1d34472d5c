//! Addresses that share the socket of a wildcard (nginx: `ngx_http_init_listening`), and requests that they serve.

use crate::support;

use net::listen::options;
use net::packets::PacketSocket;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use support::{Site, free_port, wait};

fn ask(address: &str, port: u16, sent: &str) -> String {
    let mut stream = wait("a listener", || TcpStream::connect((address, port)));
    stream.write_all(sent.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer.split("\r\n\r\n").last().unwrap_or_default().to_string()
}

/// Set in the process that [`in_own_network`] starts.
const INSIDE: &str = "TIDEGATE_TEST_OWN_NETWORK";

/// Runs a test again in a network namespace that has a loopback interface only, so that a wildcard reaches no other machine.
/// Returns `true` inside. Without the right to make namespaces, the test is skipped with a notice.
fn in_own_network(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let prepared = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !prepared.is_ok_and(|output| output.status.success()) {
        testkit::missing_means(&format!("{test}: no network namespace can be made"));
        return false;
    }
    let itself = std::env::current_exe().expect("the test's program");
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(itself)
        .arg(format!("{}::{test}", module_path!().split_once("::").expect("the program's name").1))
        .env(INSIDE, "1")
        .status();
    assert!(status.expect("it runs").success(), "the test failed in its namespace");
    false
}

#[test]
fn the_local_address_selects_the_listener_behind_a_wildcard() {
    if !in_own_network("the_local_address_selects_the_listener_behind_a_wildcard") {
        return;
    }
    let (port, other) = (free_port(), free_port());
    let rest = format!(
        "http {{
            server {{ listen {port}; return 200 any; }}
            server {{ listen 127.0.0.1:{port}; return 200 one; }}
            server {{ listen 127.0.0.2:{port}; server_name a; return 200 two; }}
            server {{ listen 127.0.0.2:{port}; server_name b; return 200 \"two b\"; }}
        }}
        stream {{
            server {{ listen 127.0.0.1:{other}; return one; }}
            server {{ listen {other}; return any; }}
        }}"
    );
    let site = Site::new("daemon off;", &rest);
    let running = site.start();
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    for (address, host, want) in
        [("127.0.0.1", "a", "one"), ("127.0.0.2", "a", "two"), ("127.0.0.2", "b", "two b"), ("127.0.0.3", "a", "any")]
    {
        assert_eq!(ask(address, port, &get(host)), want, "{address} {host}");
    }
    assert_eq!(ask("127.0.0.1", other, ""), "one");
    assert_eq!(ask("127.0.0.2", other, ""), "any");
    running.quit();
}

#[test]
fn the_access_log_counts_100_continue_as_nginx() {
    let port = free_port();
    let rest = format!(
        "http {{
            log_format l '$uri $status $body_bytes_sent';
            access_log logs/l.log l;
            server {{ listen 127.0.0.1:{port}; location /a {{ return 200 abc; }} }}
        }}"
    );
    let site = Site::new("daemon off;", &rest);
    let running = site.start();
    let post = |expect: &str| {
        format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{expect}Connection: close\r\n\r\nx")
    };
    assert_eq!(ask("127.0.0.1", port, &post("Expect: 100-continue\r\n")), "abc");
    assert_eq!(ask("127.0.0.1", port, &post("")), "abc");
    running.quit();
    assert_eq!(site.read("logs/l.log"), "/a 200 28\n/a 200 3\n");
}

#[test]
fn datagrams_above_the_mtu_reach_their_client() {
    if !in_own_network("datagrams_above_the_mtu_reach_their_client") {
        return;
    }
    let set = Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status();
    assert!(set.expect("ip runs").success());
    let application = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let at = application.local_addr().expect("address");
    let port = free_port();
    let rest = format!(
        "stream {{ server {{ listen 127.0.0.1:{port} udp; listen [::1]:{port} udp; proxy_pass {at}; proxy_responses 1; }} }}"
    );
    let site = Site::new("daemon off;", &rest);
    let running = site.start();
    for (client, server) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1")] {
        let Ok(client) = UdpSocket::bind((client, 0)) else { continue };
        client.send_to(b"request", (server, port)).expect("sent");
        let (_, session) = application.recv_from(&mut [0; 100]).expect("a request");
        application.send_to(&[7; 4000], session).expect("sent");
        client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("set");
        assert_eq!(client.recv(&mut [0; 5000]).expect("a response"), 4000, "{server}");
    }
    running.quit();
}

#[test]
fn a_socket_of_all_addresses_tells_the_destination_to_any_program() {
    if !in_own_network("a_socket_of_all_addresses_tells_the_destination_to_any_program") {
        return;
    }
    let server = UdpSocket::bind("0.0.0.0:0").expect("bind");
    let port = server.local_addr().expect("address").port();
    let socket = PacketSocket::new(server.into(), false).expect("prepared");
    for on in [true, false, true] {
        options::set_messages(&socket, on).expect("set");
        let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
        client.send_to(b"x", ("127.0.0.1", port)).expect("sent");
        let came = net::datagram::receive(socket.as_fd(), &mut [0; 9]);
        assert!(came.expect("received").to.is_some(), "{on}");
    }
}
