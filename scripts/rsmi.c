/* What rocblas-bench asks of ROCm SMI before it runs anything. SMI looks for GPUs where the software GPU is not shown.
 * There is a GPU at each place of the bus that it may ask for, and nothing is known of any. */
#include <stdint.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 2 };

int rsmi_init(uint64_t flags) {
    (void)flags;
    return SUCCESS;
}

int rsmi_num_monitor_devices(uint32_t *count) {
    *count = 256;
    return SUCCESS;
}

int rsmi_dev_pci_id_get(uint32_t device, uint64_t *id) {
    *id = (uint64_t)device << 8;
    return SUCCESS;
}

int rsmi_dev_metrics_xcd_counter_get(uint32_t device, uint16_t *count) {
    (void)device;
    *count = 1;
    return SUCCESS;
}

int rsmi_dev_gpu_metrics_info_get(uint32_t device, void *metrics) {
    (void)device;
    (void)metrics;
    return NOT_SUPPORTED;
}

int rsmi_dev_gpu_clk_freq_get(uint32_t device, int clock, void *frequencies) {
    (void)device;
    (void)clock;
    (void)frequencies;
    return NOT_SUPPORTED;
}

int rsmi_status_string(int status, const char **text) {
    (void)status;
    *text = "not known to the stub of ROCm SMI";
    return SUCCESS;
}
