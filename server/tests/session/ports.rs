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
    let text = client.expect("PORT 127,0,0,1,0,25", 504);
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
fn data_goes_to_no_service_that_only_the_server_reaches() {
    // Neither `any` nor a block with other hosts in it names special addresses.
    for hosts in ["any", "0.0.0.0/0", "169.254.0.0/15"] {
        let served = Served::with(|settings| {
            settings.data_hosts = Some(vec![hosts.parse().expect("hosts")]);
        });
        let mut client = served.anonymous();
        for command in [
            "PORT 169,254,169,254,80,80",
            "EPRT |1|169.254.169.254|5000|",
            "EPRT |2|fe80::1|5000|",
            "EPRT |2|::ffff:169.254.169.254|5000|",
        ] {
            let text = client.expect(command, 501);
            assert!(
                text.contains("is a link-local address"),
                "{command}: {text}"
            );
            assert!(text.contains("data-hosts"), "{command}: {text}");
        }
        for command in [
            "PORT 0,0,0,0,80,80",
            "PORT 255,255,255,255,80,80",
            "PORT 224,0,0,1,80,80",
        ] {
            let text = client.expect(command, 501);
            assert!(
                text.contains("is no address of a host"),
                "{command}: {text}"
            );
        }
        client.expect("MODE E", 200);
        client.expect("SPOR 127,0,0,1,80,80 169,254,169,254,80,80", 501);
        client.expect("RETR file", 425);
        // Its own machine, where the client is as well.
        client.expect(
            "PORT 127,0,0,2,80,80",
            if hosts.ends_with("/15") { 501 } else { 200 },
        );
    }
    let served = Served::with(|settings| {
        settings.data_hosts = Some(vec!["169.254.0.0/16".parse().expect("a block")]);
    });
    served.anonymous().expect("PORT 169,254,169,254,80,80", 200);
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
        settings.client_options = Some(vec!["tcp:port".parse().expect("rules")]);
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
fn the_servers_sockets_are_for_the_administrator_to_place() {
    let served = Served::new();
    let mut client = served.anonymous();
    for (stack, option) in [
        ("tcp:port=8443;bind=0.0.0.0", "port=8443"),
        ("tcp:bind=0.0.0.0", "bind=0.0.0.0"),
        ("auto:buffer=1M;advertise=192.0.2.1", "advertise=192.0.2.1"),
        ("splice:direct=1", "direct=1"),
        ("tcp,gsi:ktls=off", "ktls=off"),
    ] {
        let text = client.expect(&format!("SITE SETNETSTACK {stack}"), 500);
        let words = format!("the administrator lets no client set {option} for the driver ");
        assert!(text.contains(&words), "{text}");
    }
    let text = client.expect("SITE SETNETSTACK tcp:port=8443", 500);
    for words in [
        "clients may set buffer<=1G;buffer=auto;sndbuf<=1G;",
        "(port is for the administrator: it says where the sockets of the server are, or what they claim)",
    ] {
        assert!(text.contains(words), "{text}");
    }
    client.expect(
        "SITE SETNETSTACK tcp:buffer=1M;sndbuf=auto;rate=5g;keepalive=60s;nodelay=off",
        250,
    );
    client.expect("SITE SETNETSTACK auto:cc=reno", 250);
    assert!(client.expect("PASV", 227).contains("(127,0,0,1,"));
}

#[test]
fn what_is_for_the_administrator_may_be_granted_by_name() {
    let served = Served::with(|settings| {
        settings.client_options = Some(vec![
            "tcp:advertise=192.0.2.77;buffer".parse().expect("rules"),
        ]);
    });
    let mut client = served.anonymous();
    client.expect("SITE SETNETSTACK tcp:advertise=192.0.2.77", 250);
    assert!(client.expect("PASV", 227).contains("(192,0,2,77,"));
    client.expect("SITE SETNETSTACK tcp:advertise=192.0.2.78", 500);
    client.expect("SITE SETNETSTACK tcp:bind=127.0.0.1", 500);
    client.expect("SITE SETNETSTACK auto:advertise=192.0.2.77", 500);
}

#[test]
fn the_stacks_of_clients_keep_the_administrators_sockets() {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = probe.local_addr().expect("bound").port();
    drop(probe);
    let served = Served::with(|settings| {
        settings.stack = Some(format!("auto:rate=5g;port={port};advertise=192.0.2.77"));
    });
    let mut client = served.anonymous();
    let told = format!("(192,0,2,77,{},{})", port >> 8, port & 0xff);
    for stack in ["tcp", "auto", "splice:rate=1g", "default"] {
        client.expect(&format!("SITE SETNETSTACK {stack}"), 250);
        let text = client.expect("PASV", 227);
        assert!(text.contains(&told), "{stack}: {text}");
    }
    client.expect("SITE SETNETSTACK tcp", 250);
    let text = client.expect("SITE GETNETSTACK", 250);
    assert!(
        text.contains(&format!("stack=tcp:port={port};advertise=192.0.2.77\r\n")),
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
