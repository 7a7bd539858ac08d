//! The declarations here against the headers of rdma-core: sizes, offsets and constants.
//!
//! `layouts.txt` records what a C compiler finds in three versions. A program that is compiled with the headers of this machine
//! shows the same for its version.

use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use super::*;

/// A C expression, and its value here.
pub(in crate::verbs) type Row = (String, u64);

/// The size of a structure, and the offsets of fields.
macro_rules! layout {
    ($structure:literal, $ours:ty, $($size:ident,)? { $($field:literal: $own:ident),* $(,)? }) => {{
        let rows: Vec<Row> = vec![
            $((concat!("offsetof(", $structure, ", ", $field, ")").to_owned(), offset_of!($ours, $own) as u64),)*
            $((concat!("sizeof(", $structure, ")").to_owned(), $size::<$ours>() as u64),)?
        ];
        rows
    }};
}
pub(in crate::verbs) use layout;

fn of_attributes() -> Vec<Row> {
    let mut rows = layout!("struct ibv_device_attr", DeviceAttributes, size_of, {
        "max_qp": max_queue_pairs, "max_qp_wr": max_requests, "max_cqe": max_completions,
        "max_qp_rd_atom": max_reads_answered, "max_qp_init_rd_atom": max_reads, "phys_port_cnt": ports,
    });
    // It grows at its end. The symbol fills only the first 48 bytes (rdma-core 44: struct _compat_ibv_port_attr).
    rows.extend(layout!("struct ibv_port_attr", PortAttributes, {
        "state": state, "active_mtu": active_mtu, "max_msg_sz": max_message_bytes, "lid": lid,
        "link_layer": link_layer, "flags": flags,
    }));
    rows.extend(layout!("struct ibv_async_event", AsyncEvent, size_of, {
        "element": element, "event_type": kind,
    }));
    rows.extend(layout!("struct ibv_qp_cap", Capacity, size_of, {
        "max_send_wr": sends, "max_recv_wr": receives, "max_send_sge": send_segments,
        "max_recv_sge": receive_segments, "max_inline_data": inline_bytes,
    }));
    rows.extend(layout!("struct ibv_qp_init_attr", QueuePairInit, size_of, {
        "qp_context": owner, "send_cq": send_queue, "recv_cq": receive_queue, "srq": shared_receives, "cap": capacity,
        "qp_type": kind, "sq_sig_all": signals_all,
    }));
    rows.extend(layout!("struct ibv_ah_attr", Address, size_of, {
        "grh.dgid": gid, "grh.flow_label": flow_label, "grh.sgid_index": own_gid_index, "grh.hop_limit": hop_limit,
        "grh.traffic_class": traffic_class, "dlid": lid, "sl": service_level, "src_path_bits": source_path,
        "static_rate": static_rate, "is_global": is_global, "port_num": port,
    }));
    rows.extend(layout!("struct ibv_qp_attr", QueuePairAttributes, size_of, {
        "qp_state": state, "cur_qp_state": current_state, "path_mtu": mtu, "path_mig_state": migration, "qkey": key,
        "rq_psn": first_received, "sq_psn": first_sent, "dest_qp_num": peer, "qp_access_flags": access,
        "cap": capacity, "ah_attr": address, "alt_ah_attr": alternative, "pkey_index": partition_index,
        "alt_pkey_index": alternative_partition, "en_sqd_async_notify": drains, "max_rd_atomic": reads,
        "max_dest_rd_atomic": reads_answered, "min_rnr_timer": not_ready_timer, "port_num": port,
        "timeout": timeout, "retry_cnt": retries, "rnr_retry": not_ready_retries, "alt_port_num": alternative_port,
        "rate_limit": rate_limit,
    }));
    rows
}

fn of_objects_and_requests() -> Vec<Row> {
    let mut rows = layout!("struct ibv_context", Context, {
        "device": device, "ops.poll_cq": poll_cq, "ops.req_notify_cq": req_notify_cq, "ops.post_send": post_send,
        "ops.post_recv": post_recv, "async_fd": async_descriptor,
        "num_comp_vectors": completion_vectors, "abi_compat": abi_compat,
    });
    rows.extend(of_extension());
    rows.extend(layout!("struct ibv_qp_rate_limit_attr", RateLimit, size_of, {
        "rate_limit": rate, "max_burst_sz": burst_bytes, "typical_pkt_sz": packet_bytes, "comp_mask": mask,
    }));
    rows.extend(
        layout!("struct ibv_device_attr_ex", ExtendedAttributes, { "packet_pacing_caps": pacing }),
    );
    rows.extend(
        layout!("struct ibv_packet_pacing_caps", PacingRates, size_of, {
            "qp_rate_limit_min": least, "qp_rate_limit_max": most, "supported_qpts": kinds,
        }),
    );
    rows.extend(
        layout!("struct ibv_mr", MemoryRegion, size_of, { "lkey": local_key, "rkey": remote_key }),
    );
    rows.extend(layout!("struct ibv_comp_channel", CompletionChannel, { "fd": descriptor }));
    rows.extend(layout!("struct ibv_qp", QueuePair, { "context": context, "qp_num": number }));
    rows.extend(layout!("struct ibv_sge", Segment, size_of, {
        "addr": address, "length": length, "lkey": local_key,
    }));
    rows.extend(layout!("struct ibv_send_wr", SendRequest, size_of, {
        "wr_id": id, "next": next, "sg_list": segments, "num_sge": segment_count, "opcode": operation,
        "send_flags": flags, "imm_data": immediate, "wr.rdma.remote_addr": remote_address, "wr.rdma.rkey": remote_key,
    }));
    rows.extend(layout!("struct ibv_recv_wr", ReceiveRequest, size_of, {
        "wr_id": id, "next": next, "sg_list": segments, "num_sge": segment_count,
    }));
    rows.extend(layout!("struct ibv_wc", WorkCompletion, size_of, {
        "wr_id": id, "status": status, "opcode": operation, "byte_len": length, "imm_data": immediate,
    }));
    rows
}

/// Offsets are counted back from the context, in front of which the fields are.
fn of_extension() -> Vec<Row> {
    let end = size_of::<Extension>();
    let fields = [
        (
            "modify_qp_rate_limit",
            offset_of!(Extension, modify_qp_rate_limit),
        ),
        ("query_device_ex", offset_of!(Extension, query_device_ex)),
        ("sz", offset_of!(Extension, size)),
    ];
    let row = |(field, offset)| {
        let field = format!("offsetof(struct verbs_context, {field})");
        let expression = format!("offsetof(struct verbs_context, context) - {field}");
        (expression, (end - offset) as u64)
    };
    let mut rows: Vec<Row> = fields.into_iter().map(row).collect();
    let context = size_of::<Context>() as u64;
    rows.push(("sizeof(struct ibv_context)".to_owned(), context));
    rows
}

fn of_constants() -> Vec<Row> {
    let numbers = [
        ("IBV_EVENT_CQ_ERR", EVENT_QUEUE_OVERRUN),
        ("IBV_EVENT_DEVICE_FATAL", EVENT_DEVICE_FATAL),
        ("IBV_EVENT_PORT_ERR", EVENT_PORT_DOWN),
        ("IBV_QPF_GRH_REQUIRED", PORT_NEEDS_GLOBAL_ROUTES.into()),
        ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE),
        ("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE),
        ("IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ),
        ("IBV_ACCESS_RELAXED_ORDERING", ACCESS_RELAXED_ORDERING),
        ("IBV_QPT_RC", RELIABLE_CONNECTION),
        ("IBV_QPS_RESET", STATE_RESET),
        ("IBV_QPS_INIT", STATE_INIT),
        ("IBV_QPS_RTR", STATE_READY_TO_RECEIVE),
        ("IBV_QPS_RTS", STATE_READY_TO_SEND),
        ("IBV_QP_STATE", SET_STATE),
        ("IBV_QP_ACCESS_FLAGS", SET_ACCESS),
        ("IBV_QP_PKEY_INDEX", SET_PARTITION),
        ("IBV_QP_PORT", SET_PORT),
        ("IBV_QP_AV", SET_ADDRESS),
        ("IBV_QP_PATH_MTU", SET_MTU),
        ("IBV_QP_TIMEOUT", SET_TIMEOUT),
        ("IBV_QP_RETRY_CNT", SET_RETRIES),
        ("IBV_QP_RNR_RETRY", SET_NOT_READY_RETRIES),
        ("IBV_QP_RQ_PSN", SET_FIRST_RECEIVED),
        ("IBV_QP_MAX_QP_RD_ATOMIC", SET_READS),
        ("IBV_QP_MIN_RNR_TIMER", SET_NOT_READY_TIMER),
        ("IBV_QP_SQ_PSN", SET_FIRST_SENT),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", SET_READS_ANSWERED),
        ("IBV_QP_DEST_QPN", SET_PEER),
        ("IBV_WR_RDMA_WRITE", OPERATION_WRITE),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", OPERATION_WRITE_WITH_IMMEDIATE),
        ("IBV_WR_SEND", OPERATION_SEND),
        ("IBV_WR_RDMA_READ", OPERATION_READ),
        ("IBV_SEND_SIGNALED", SEND_SIGNALED.cast_signed()),
        ("IBV_WC_RECV_RDMA_WITH_IMM", COMPLETED_WRITE_OF_PEER),
        ("IBV_WC_SUCCESS", STATUS_SUCCESS),
        ("IBV_WC_WR_FLUSH_ERR", STATUS_FLUSHED),
    ];
    let row = |(name, value): (&str, c_int)| (name.to_owned(), u64::from(value.unsigned_abs()));
    numbers.into_iter().map(row).collect()
}

fn of_verbs() -> Vec<Row> {
    let mut rows = of_attributes();
    rows.extend(of_objects_and_requests());
    rows.extend(of_constants());
    rows
}

/// Compares rows with the recorded ones of all versions.
pub(in crate::verbs) fn compare_with_records(rows: &[Row]) {
    let records = include_str!("layouts.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let records: HashMap<&str, Vec<&str>> = records
        .filter_map(|line| line.split_once(" = "))
        .map(|(expression, values)| (expression, values.split(' ').collect()))
        .collect();
    for (expression, ours) in rows {
        let theirs = records.get(expression.as_str());
        let theirs = theirs
            .unwrap_or_else(|| panic!("layouts.txt has no {expression}, which is {ours} here"));
        for value in theirs {
            // The version has no such field or constant.
            let is_same = *value == "-" || *value == ours.to_string();
            assert!(
                is_same,
                "{expression} is {ours} here, and {theirs:?} in the versions"
            );
        }
    }
}

/// Compares rows with what a C compiler finds in a header of this machine.
pub(in crate::verbs) fn compare_with_header(header: &str, rows: &[Row]) {
    let directory = tempfile::tempdir().unwrap();
    let compile = |name: &str, text: String| {
        let source = directory.path().join(format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let program = directory.path().join(name);
        let mut compiler = Command::new("cc");
        let compiled = compiler
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&compiled.stderr).into_owned();
        compiled.status.success().then_some(program).ok_or(errors)
    };
    let head = format!("#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\n");
    if let Err(errors) = compile("empty", format!("{head}int main(void) {{ return 0; }}\n")) {
        return gridhaul_skip::skipped(&format!(
            "apt install libibverbs-dev librdmacm-dev: {errors}"
        ));
    }
    let lines: String = rows
        .iter()
        .map(|(expression, _)| {
            format!("    printf(\"%llu\\n\", (unsigned long long)({expression}));\n")
        })
        .collect();
    let program = compile(
        "probe",
        format!("{head}int main(void)\n{{\n{lines}    return 0;\n}}\n"),
    );
    let program = program.unwrap_or_else(|errors| panic!("{errors}"));
    let found = run(&program);
    assert_eq!(found.len(), rows.len(), "{found:?}");
    for ((expression, ours), theirs) in rows.iter().zip(found) {
        assert_eq!(ours.to_string(), theirs, "{expression}");
    }
}

fn run(program: &Path) -> Vec<String> {
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_declarations_are_those_of_all_versions() {
    compare_with_records(&of_verbs());
}

#[test]
fn the_declarations_are_those_of_the_header() {
    compare_with_header("infiniband/verbs.h", &of_verbs());
}
