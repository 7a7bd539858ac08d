//! Where data connections may go.

use std::net::SocketAddr;

use gridhaul_protocol::address::PassiveAddress;

use crate::served::Served;

#[test]
fn data_goes_to_the_client_only() {
    let served = Served::new();
    let mut client = served.anonymous();
    let text = client.expect("PORT 192,0,2,1,80,80", 501);
    assert!(text.contains("192.0.2.1 is not your address"), "{text}");
    let text = client.expect("PORT 127,0,0,1,0,25", 501);
    assert!(text.contains("port 25 is below 1024"), "{text}");
    client.expect("EPRT |1|192.0.2.1|5000|", 501);
    client.expect("MODE E", 200);
    client.expect("SPOR 127,0,0,1,80,80 192,0,2,1,80,80", 501);
    client.expect("PORT 127,0,0,1,80,80", 200);
}

#[test]
fn the_administrator_may_name_other_hosts() {
    let served = Served::with(|settings| {
        settings.data_hosts = Some(vec!["192.0.2.0/24".parse().expect("a block")]);
    });
    let mut client = served.anonymous();
    client.expect("PORT 192,0,2,1,80,80", 200);
    client.expect("PORT 198,51,100,1,80,80", 501);
}

#[test]
fn passive_addresses_come_in_the_form_that_was_asked_for() {
    let served = Served::with(|settings| settings.stripes = Some(3));
    let mut client = served.anonymous();
    assert!(
        client
            .expect("PASV", 227)
            .starts_with("227 Entering Passive Mode (127,0,0,1,")
    );
    assert!(
        client
            .expect("EPSV", 229)
            .starts_with("229 Entering Extended Passive Mode (|||")
    );
    client.expect("EPSV 1", 229);
    assert!(client.expect("EPSV 2", 522).contains("use (1)"));
    client.send("SPAS");
    let addresses = |reply| {
        PassiveAddress::parse(&reply)
            .expect("addresses")
            .addresses("127.0.0.1".parse().expect("an address"))
    };
    assert_eq!(addresses(client.reply()).len(), 1, "stripes are for MODE E");
    client.expect("MODE E", 200);
    client.send("SPAS");
    let striped: Vec<SocketAddr> = addresses(client.reply());
    assert_eq!(striped.len(), 3);
    assert!(client.expect("SPAS 1", 229).contains("\r\n |1|127.0.0.1|"));
}

#[test]
fn an_ipv6_connection_gets_ipv6_addresses() {
    let served = Served::with(|settings| {
        settings.listen = Some(vec!["[::1]:0".parse().expect("an address")]);
    });
    served.write("file", "content");
    let mut client = served.anonymous();
    assert!(client.expect("PASV", 425).contains("send EPSV"));
    client.expect("EPSV 1", 522);
    client.send("EPSV");
    let reply = client.reply();
    let mut data = client.connect_data(&reply);
    client.expect("RETR file", 150);
    let mut content = String::new();
    std::io::Read::read_to_string(&mut data, &mut content).expect("received");
    assert_eq!(content, "content");
    client.expect_reply(226);
}

#[test]
fn the_advertised_address_is_told() {
    let served = Served::with(|settings| {
        settings.advertise_address = Some("192.0.2.77".parse().expect("an address"));
    });
    let mut client = served.anonymous();
    assert!(client.expect("PASV", 227).contains("(192,0,2,77,"));
    assert!(client.expect("EPSV", 229).contains("(|1|192.0.2.77|"));
}

#[test]
fn ports_are_of_the_range_whatever_the_client_asks_for() {
    // Two ports that were free a moment ago.
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = probe.local_addr().expect("bound").port();
    drop(probe);
    let served = Served::with(|settings| {
        settings.port_range = Some(format!("{port}-{port}").parse().expect("a range"));
    });
    let mut client = served.anonymous();
    let told = format!("{},{})", port >> 8, port & 0xff);
    assert!(client.expect("PASV", 227).contains(&told));
    client.expect("SITE SETNETSTACK tcp:port=1024-65535", 250);
    assert!(client.expect("PASV", 227).contains(&told));
    let text = served.anonymous().expect("PASV", 425);
    assert!(
        text.contains(&format!("no free port in the range {port}-{port}")),
        "{text}"
    );
}

#[test]
fn stacks_are_those_that_are_allowed() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("SITE SETNETSTACK tcp", 250);
    client.expect("SITE SETNETSTACK default", 250);
    let text = client.expect("SITE SETNETSTACK udt,gsi", 500);
    assert_eq!(
        text,
        "500-Setting data channel driver stack failed.\r\n500-udt driver not whitelisted\r\n500 End.\r\n"
    );
    let text = client.expect("SITE SETNETSTACK tcp:nonsense=1", 500);
    assert!(text.contains("nonsense"), "{text}");
    client.expect("SITE SETDISKSTACK file", 250);
    client.expect("SITE SETDISKSTACK popen:argv=#cat", 500);
}

#[test]
fn nothing_but_epsv_after_epsv_all() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("EPSV ALL", 229);
    client.expect("PASV", 503);
    client.expect("PORT 127,0,0,1,80,80", 503);
    client.expect("EPSV", 229);
}
