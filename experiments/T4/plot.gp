# Draws the figures of T4 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.9.svg'
set title 'response time over the dedicated one, share 0.1 each' noenhanced
set xlabel 'programs' noenhanced
set ylabel 'times' noenhanced
plot for [column=2:4] 'figure-5.9.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.10.svg'
set title 'speed-up by exchange with migration, all CPU booked' noenhanced
set xlabel 'programs' noenhanced
set ylabel '%' noenhanced
plot for [column=2:3] 'figure-5.10.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
