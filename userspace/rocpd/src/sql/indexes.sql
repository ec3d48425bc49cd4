CREATE INDEX rocpd_arg{uuid}_event_id_idx ON rocpd_arg{uuid} (event_id);
CREATE INDEX rocpd_pmc_event{uuid}_event_id_idx ON rocpd_pmc_event{uuid} (event_id);
CREATE INDEX rocpd_info_process{uuid}_pid_idx ON rocpd_info_process{uuid} (pid);
CREATE INDEX rocpd_info_thread{uuid}_tid_idx ON rocpd_info_thread{uuid} (tid);
