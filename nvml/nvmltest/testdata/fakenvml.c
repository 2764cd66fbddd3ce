// A library that behaves like NVML on a node with four GPUs:
//   0  tells everything
//   1  does not let this user see its power
//   2  is divided into two MIG devices (indices 0 and 2), and does not tell its utilisation
//   3  is lost
// Written from the NVML API reference, with the types of nvml.h. Built with -D…:
//   INIT=N         nvmlInit_v2 returns N
//   HANG="FILE"    nvmlInit_v2 does not return before somebody writes to the FIFO
//   HIDDEN=N       this process may not use GPU N
//   PLANTED=1      counts one GPU more when it is asked again, and every other handle is that of a
//                  twin, which tells something else
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#ifndef INIT
#define INIT NVML_SUCCESS
#endif
#ifndef HIDDEN
#define HIDDEN -1
#endif
#ifndef PLANTED
#define PLANTED 0
#endif

typedef struct nvmlDevice_st {
	const char *uuid, *name;
	int index, mig; // mig: a MIG device
	unsigned twin;  // 1: a twin
} device;

#define GPUS(twin) { \
	{"GPU-00000000-aaaa-0000-0000-000000000000", "Fake H200", 0, 0, twin}, \
	{"GPU-11111111-bbbb-0000-0000-000000000000", "Fake H200", 1, 0, twin}, \
	{"GPU-22222222-cccc-0000-0000-000000000000", "Fake A100", 2, 0, twin}, \
	{"GPU-33333333-dddd-0000-0000-000000000000", "Fake H200", 3, 0, twin}, \
}
#define MIGS(twin) { \
	{"MIG-aaaaaaaa-0000-0000-0000-000000000000", "Fake A100 MIG 3g.20gb", -1, 1, twin}, \
	{0}, \
	{"MIG-bbbbbbbb-0000-0000-0000-000000000000", "Fake A100 MIG 3g.20gb", -1, 1, twin}, \
}
static device gpus[2][4] = {GPUS(0), GPUS(1)};
static device migs[2][3] = {MIGS(0), MIGS(1)};

static int users;
int fake_shutdowns;

// what every call checks first
static nvmlReturn_t check(device *g) {
	if (users == 0)
		return NVML_ERROR_UNINITIALIZED;
	return g && g->index == 3 ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

#define CHECK(g)                              \
	do {                                  \
		nvmlReturn_t code = check(g); \
		if (code)                     \
			return code;          \
	} while (0)

nvmlReturn_t nvmlInit_v2(void) {
#ifdef HANG
	char c;
	int fifo = open(HANG, O_RDONLY);
	if (read(fifo, &c, 1) != 1)
		return NVML_ERROR_UNINITIALIZED;
	close(fifo);
#endif
	if (INIT == NVML_SUCCESS)
		users++;
	return INIT;
}

nvmlReturn_t nvmlShutdown(void) {
	CHECK(0);
	users--;
	fake_shutdowns++;
	return NVML_SUCCESS;
}

static nvmlReturn_t text(device *g, const char *from, char *to, unsigned size) {
	if (strlen(from) + 1 > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	if (g->twin)
		to[0] = 'X';
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
	static unsigned calls;
	CHECK(0);
	*count = 4 + (PLANTED && calls++ % 2);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *d) {
	static unsigned calls;
	CHECK(0);
	if (index >= 4)
		return NVML_ERROR_INVALID_ARGUMENT;
	if ((int)index == HIDDEN)
		return NVML_ERROR_NO_PERMISSION;
	d->handle = &gpus[PLANTED && calls++ % 2][index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *to, unsigned size) {
	CHECK(d.handle);
	return text(d.handle, d.handle->uuid, to, size);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *to, unsigned size) {
	CHECK(d.handle);
	return text(d.handle, d.handle->name, to, size);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *to) {
	CHECK(d.handle);
	if (d.handle->mig || d.handle->index == 2)
		return NVML_ERROR_NOT_SUPPORTED;
	to->gpu = (d.handle->index == 0 ? 75 : 0) + d.handle->twin;
	to->memory = 12;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *to) {
	CHECK(d.handle);
	to->total = d.handle->mig ? 20ull << 30 : 141ull << 30;
	to->used = (5ull << 30) + d.handle->twin;
	to->free = to->total - to->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *milliwatts) {
	CHECK(d.handle);
	if (d.handle->index == 1 && !d.handle->twin)
		return NVML_ERROR_NO_PERMISSION;
	if (d.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	*milliwatts = 312500 + d.handle->twin;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor,
				      unsigned *celsius) {
	CHECK(d.handle);
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = 41 + d.handle->twin;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t counter,
					 unsigned *kilobytes) {
	CHECK(d.handle);
	if (d.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	if (counter != NVML_PCIE_UTIL_TX_BYTES && counter != NVML_PCIE_UTIL_RX_BYTES)
		return NVML_ERROR_INVALID_ARGUMENT;
	*kilobytes = (counter == NVML_PCIE_UTIL_TX_BYTES ? 2000 : 7000000) + d.handle->twin;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending) {
	CHECK(d.handle);
	if (d.handle->index == 0)
		return d.handle->twin ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = d.handle->index == 2 && !d.handle->twin;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *count) {
	CHECK(d.handle);
	*count = d.handle->index == 2 ? 7 - 5 * d.handle->twin : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index,
						 nvmlDevice_t *mig) {
	CHECK(d.handle);
	if (d.handle->index != 2)
		return NVML_ERROR_NOT_SUPPORTED;
	if (index >= 3 || !migs[0][index].uuid)
		return NVML_ERROR_NOT_FOUND;
	mig->handle = &migs[d.handle->twin][index];
	return NVML_SUCCESS;
}
