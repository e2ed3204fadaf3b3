//! The structures and numbers of `ffi::types` and `ffi::cm_types` against the headers that they were written from, by asking
//! a C compiler.

use crate::verbs::ffi::cm_types::{CmEvent, CmId, ConnParam, EventChannel, PS_TCP, event};
use crate::verbs::ffi::on_demand_types::{self, DeviceAttrEx, Extended, IS_EXTENDED, WholeContext};
use crate::verbs::ffi::types::{
    self, AhAttr, CompChannel, Context, Cq, Device, GidEntry, GlobalRoute, Mr, Ops, Pd, PortAttr,
    Qp, QpAttr, QpCap, QpInitAttr, RecvWr, SendWr, Sge, SrqAttr, SrqInitAttr, Wc, access, mask,
    state,
};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "/usr/include/infiniband/verbs.h";
const CM_HEADER: &str = "/usr/include/rdma/rdma_cma.h";

/// A line for each number: what C calls it, and ours.
struct Numbers {
    c: Vec<String>,
    own: Vec<u64>,
}

impl Numbers {
    fn add(&mut self, c: String, own: u64) {
        self.c.push(c);
        self.own.push(own);
    }
}

/// Sizes (of structures that are known as a whole) and places.
macro_rules! layout {
    ($numbers:ident, $($whole:ident $c:literal => $own:ty { $($field:ident $(= $name:literal)?),* })*) => {$(
        if stringify!($whole) == "whole" {
            $numbers.add(format!("sizeof({})", $c), size_of::<$own>() as u64);
        }
        $({
            #[allow(unused_mut, unused_assignments)]
            let mut name = stringify!($field);
            $(name = $name;)?
            $numbers.add(format!("offsetof({}, {name})", $c), offset_of!($own, $field) as u64);
            $numbers.add(format!("sizeof((({} *)0)->{name})", $c), size_of_field(|own: &$own| &raw const own.$field));
        })*
    )*};
}

fn size_of_field<T, F>(_: impl Fn(&T) -> *const F) -> u64 {
    size_of::<F>() as u64
}

fn numbers() -> Numbers {
    let mut numbers = Numbers {
        c: Vec::new(),
        own: Vec::new(),
    };
    layout! { numbers,
        part "struct ibv_device" => Device { ops = "_ops", node_type, transport_type, name }
        whole "struct ibv_context_ops" => Ops {
            poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv
        }
        part "struct ibv_context" => Context { device, ops, cmd_fd, async_fd }
        whole "struct ibv_context" => WholeContext { num_comp_vectors, mutex, abi_compat }
        whole "struct ibv_device_attr_ex" => DeviceAttrEx {
            comp_mask, odp_general = "odp_caps.general_caps", odp_rc = "odp_caps.per_transport_caps.rc_odp_caps"
        }
        whole "struct ibv_pd" => Pd { context, handle }
        whole "struct ibv_mr" => Mr { context, pd, addr, length, handle, lkey, rkey }
        part "struct ibv_cq" => Cq { context }
        whole "struct ibv_comp_channel" => CompChannel { context, fd, refcnt }
        whole "struct ibv_recv_wr" => RecvWr { wr_id, next, sg_list, num_sge }
        part "struct ibv_qp" => Qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num }
        whole "struct ibv_qp_cap" => QpCap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data
        }
        whole "struct ibv_qp_init_attr" => QpInitAttr {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all
        }
        whole "struct ibv_srq_attr" => SrqAttr { max_wr, max_sge, srq_limit }
        whole "struct ibv_srq_init_attr" => SrqInitAttr { srq_context, attr }
        whole "struct ibv_global_route" => GlobalRoute {
            dgid, flow_label, sgid_index, hop_limit, traffic_class
        }
        whole "struct ibv_ah_attr" => AhAttr {
            grh, dlid, sl, src_path_bits, static_rate, is_global, port_num
        }
        whole "struct ibv_qp_attr" => QpAttr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit
        }
        whole "struct ibv_sge" => Sge { addr, length, lkey }
        whole "struct ibv_send_wr" => SendWr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data,
            remote_addr = "wr.rdma.remote_addr", rkey = "wr.rdma.rkey"
        }
        whole "struct ibv_wc" => Wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits
        }
        whole "struct ibv_port_attr" => PortAttr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
            port_cap_flags2
        }
        whole "struct ibv_gid_entry" => GidEntry {
            gid, gid_index, port_num, gid_type, ndev_ifindex
        }
    }
    // (from what is called on)
    for (field, own) in [
        ("sz", offset_of!(Extended, sz)),
        ("context", offset_of!(Extended, context)),
    ] {
        let from = "offsetof(struct verbs_context, query_device_ex)";
        numbers.add(
            format!("offsetof(struct verbs_context, {field}) - {from}"),
            own as u64,
        );
    }
    numbers.add(
        "(uintptr_t)__VERBS_ABI_IS_EXTENDED".to_owned(),
        IS_EXTENDED as u64,
    );
    numbers.add("IBV_ODP_SUPPORT".to_owned(), on_demand_types::ODP_SUPPORT);
    numbers.add(
        "IBV_ODP_SUPPORT_READ".to_owned(),
        on_demand_types::ODP_SUPPORT_READ.into(),
    );
    let signed = [
        ("TRANSPORT_IB", types::TRANSPORT_IB),
        ("TRANSPORT_IWARP", types::TRANSPORT_IWARP),
        ("QPT_RC", types::QPT_RC),
        ("QPS_INIT", state::INIT),
        ("QPS_RTR", state::RTR),
        ("QPS_RTS", state::RTS),
        ("QPS_ERR", state::ERR),
        ("QP_STATE", mask::STATE),
        ("QP_ACCESS_FLAGS", mask::ACCESS_FLAGS),
        ("QP_PKEY_INDEX", mask::PKEY_INDEX),
        ("QP_PORT", mask::PORT),
        ("QP_AV", mask::AV),
        ("QP_PATH_MTU", mask::PATH_MTU),
        ("QP_TIMEOUT", mask::TIMEOUT),
        ("QP_RETRY_CNT", mask::RETRY_CNT),
        ("QP_RNR_RETRY", mask::RNR_RETRY),
        ("QP_RQ_PSN", mask::RQ_PSN),
        ("QP_MAX_QP_RD_ATOMIC", mask::MAX_QP_RD_ATOMIC),
        ("QP_MIN_RNR_TIMER", mask::MIN_RNR_TIMER),
        ("QP_SQ_PSN", mask::SQ_PSN),
        ("QP_MAX_DEST_RD_ATOMIC", mask::MAX_DEST_RD_ATOMIC),
        ("QP_DEST_QPN", mask::DEST_QPN),
        ("ACCESS_LOCAL_WRITE", access::LOCAL_WRITE),
        ("ACCESS_REMOTE_WRITE", access::REMOTE_WRITE),
        ("ACCESS_REMOTE_READ", access::REMOTE_READ),
        ("ACCESS_ON_DEMAND", access::ON_DEMAND),
        ("WR_RDMA_WRITE", types::WR_RDMA_WRITE),
        ("WR_RDMA_WRITE_WITH_IMM", types::WR_RDMA_WRITE_WITH_IMM),
        ("WR_SEND", types::WR_SEND),
        ("WR_SEND_WITH_IMM", types::WR_SEND_WITH_IMM),
        ("WR_RDMA_READ", types::WR_RDMA_READ),
        ("WC_RECV", types::WC_RECV),
        ("WC_RECV_RDMA_WITH_IMM", types::WC_RECV_RDMA_WITH_IMM),
        ("PORT_ACTIVE", types::PORT_ACTIVE),
        ("LINK_LAYER_INFINIBAND", types::LINK_INFINIBAND.into()),
        ("LINK_LAYER_UNSPECIFIED", types::LINK_UNSPECIFIED.into()),
        ("QPF_GRH_REQUIRED", types::NEEDS_GRH.into()),
        ("GID_TYPE_IB", types::GID_IB.cast_signed()),
        ("LINK_LAYER_ETHERNET", types::LINK_ETHERNET.into()),
        ("SEND_SIGNALED", types::SEND_SIGNALED.cast_signed()),
        ("SEND_SOLICITED", types::SEND_SOLICITED.cast_signed()),
        ("SEND_INLINE", types::SEND_INLINE.cast_signed()),
        ("GID_TYPE_ROCE_V1", types::GID_ROCE_V1.cast_signed()),
        ("GID_TYPE_ROCE_V2", types::GID_ROCE_V2.cast_signed()),
    ];
    for (name, own) in signed {
        numbers.add(format!("IBV_{name}"), u64::from(own.unsigned_abs()));
    }
    numbers
}

fn cm_numbers() -> Numbers {
    let mut numbers = Numbers {
        c: Vec::new(),
        own: Vec::new(),
    };
    layout! { numbers,
        whole "struct rdma_event_channel" => EventChannel { fd }
        part "struct rdma_cm_id" => CmId { verbs, channel, context, qp, route, ps, port_num }
        whole "struct rdma_conn_param" => ConnParam {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num
        }
        part "struct rdma_cm_event" => CmEvent { id, listen_id, event, status, conn = "param.conn" }
    }
    for (name, own) in [
        ("PS_TCP", PS_TCP),
        ("CM_EVENT_ADDR_RESOLVED", event::ADDR_RESOLVED),
        ("CM_EVENT_ROUTE_RESOLVED", event::ROUTE_RESOLVED),
        ("CM_EVENT_CONNECT_REQUEST", event::CONNECT_REQUEST),
        ("CM_EVENT_ESTABLISHED", event::ESTABLISHED),
    ] {
        numbers.add(format!("RDMA_{name}"), u64::from(own.unsigned_abs()));
    }
    numbers
}

#[test]
fn the_structures_are_those_of_the_header() {
    compare("verbs", HEADER, &numbers());
}

#[test]
fn those_of_the_connection_manager_are_those_of_its_header() {
    compare("cm", CM_HEADER, &cm_numbers());
}

fn compare(name: &str, header: &str, numbers: &Numbers) {
    if !Path::new(header).exists() {
        println!("skipped: {header} is not installed (libibverbs-dev, librdmacm-dev)");
        return;
    }
    let mut program = format!("#include <stdio.h>\n#include <stddef.h>\n#include \"{header}\"\n");
    program += "int main(void) {\n";
    for c in &numbers.c {
        program += &format!("printf(\"%lu\\n\", (unsigned long)({c}));\n");
    }
    program += "return 0; }\n";
    let folder = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let built = Command::new("gcc")
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .status();
    assert!(built.unwrap().success());
    let said = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let theirs: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), numbers.own.len());
    for ((c, theirs), own) in numbers.c.iter().zip(theirs).zip(&numbers.own) {
        assert_eq!(*own, theirs, "{c}");
    }
}
